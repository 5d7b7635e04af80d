! SPDX-License-Identifier: BSD-3-Clause
!
! Collectives on device memory through one of Fortran's three bindings, chosen by -DBINDING=1 (mpif.h), 2 (use mpi) or
! 3 (use mpi_f08): out of place, MPI_IN_PLACE, a broadcast under MPI_BOTTOM; and messages around a ring. Persistent
! collectives are MPI 4's, or, with -DEXTENSIONS, Open MPI 4.1's.
program door
  use iso_c_binding
#if BINDING == 3
  use mpi_f08
#ifdef EXTENSIONS
  use mpi_f08_ext
#endif
#elif BINDING == 2
  use mpi
#ifdef EXTENSIONS
  use mpi_ext
#endif
#endif
  implicit none
#if BINDING == 1
  include 'mpif.h'
#ifdef EXTENSIONS
  include 'mpif-ext.h'
#endif
#endif
  interface
    integer(c_int) function cuda_malloc(address, bytes) bind(c, name='cudaMalloc')
      import
      type(c_ptr) :: address
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function cuda_memcpy(to, from, bytes, kind) bind(c, name='cudaMemcpy')
      import
      type(c_ptr), value :: to, from
      integer(c_size_t), value :: bytes
      integer(c_int), value :: kind
    end function
  end interface
  integer, parameter :: n = 1000
  integer(c_size_t), parameter :: bytes = 4 * n
  integer(c_int), target :: host(n)
  integer(c_int), pointer :: send(:), recv(:)
  type(c_ptr) :: send_address, recv_address
  integer :: ierr, rank, ranks, i, round, failures, all_failures, left, right
  integer :: lengths(1)
  integer(MPI_ADDRESS_KIND) :: places(1)
#if BINDING == 3
  type(MPI_Datatype) :: absolute
  type(MPI_Request) :: requests(2)
#else
  integer :: absolute, requests(2)
#endif

  failures = 0
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  if (cuda_malloc(send_address, bytes) /= 0 .or. cuda_malloc(recv_address, bytes) /= 0) stop 3
  call c_f_pointer(send_address, send, [n])
  call c_f_pointer(recv_address, recv, [n])

  host = [(i + rank, i = 1, n)]
  call put(send_address)
  call MPI_Allreduce(send, recv, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call expect(recv_address, [(i * ranks + ranks * (ranks - 1) / 2, i = 1, n)])

  host = [(i + rank, i = 1, n)]
  call put(recv_address)
  call MPI_Allreduce(MPI_IN_PLACE, recv, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
  call expect(recv_address, [(i + ranks - 1, i = 1, n)])

  host = [(i * (1 - min(rank, 1)), i = 1, n)]
  call put(send_address)
  lengths(1) = n
  call MPI_Get_address(send, places(1), ierr)
  call MPI_Type_create_hindexed(1, lengths, places, MPI_INTEGER, absolute, ierr)
  call MPI_Type_commit(absolute, ierr)
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, ierr)
  call MPI_Type_free(absolute, ierr)
  call expect(send_address, [(i, i = 1, n)])

  left = modulo(rank - 1, ranks)
  right = modulo(rank + 1, ranks)
  host = [(2 * i + rank, i = 1, n)]
  call put(send_address)
  call MPI_Irecv(recv, n, MPI_INTEGER, left, 0, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Isend(send, n, MPI_INTEGER, right, 0, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  call expect(recv_address, [(2 * i + left, i = 1, n)])

  call MPI_Sendrecv_replace(send, n, MPI_INTEGER, right, 1, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call expect(send_address, [(2 * i + left, i = 1, n)])

  call MPI_Recv_init(recv, n, MPI_INTEGER, left, 2, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Send_init(send, n, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(2), ierr)
  host = [(3 * i + rank, i = 1, n)]
  call put(send_address)
  call MPI_Startall(2, requests, ierr)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  call expect(recv_address, [(3 * i + left, i = 1, n)])
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)

  ! Nonblocking collectives, in place and not, of which the arguments' arrays may be the binding's.
  host = [(i + rank, i = 1, n)]
  call put(send_address)
  call MPI_Iallreduce(send, recv, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
  call expect(recv_address, [(i * ranks + ranks * (ranks - 1) / 2, i = 1, n)])
  call MPI_Iallreduce(MPI_IN_PLACE, send, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Ibcast(recv, n, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  call expect(send_address, [(i + ranks - 1, i = 1, n)])

#ifdef EXTENSIONS
  call MPIX_Allreduce_init(send, recv, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), ierr)
  call MPIX_Bcast_init(send, n, MPI_INTEGER, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2), ierr)
#else
  call MPI_Allreduce_init(send, recv, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), ierr)
  call MPI_Bcast_init(send, n, MPI_INTEGER, 0, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2), ierr)
#endif
  do round = 1, 3
    host = [(i + rank * round, i = 1, n)]
    call put(send_address)
    call MPI_Start(requests(1), ierr)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
    call expect(recv_address, [(i * ranks + round * ranks * (ranks - 1) / 2, i = 1, n)])
    call MPI_Startall(1, requests(2:2), ierr)
    call MPI_Waitall(1, requests(2:2), MPI_STATUSES_IGNORE, ierr)
    call expect(send_address, [(i, i = 1, n)])
  end do
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)

  call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(i0, a, i0, a)', 14 * ranks - all_failures, ' checks passed, ', all_failures, ' failed'
  call MPI_Finalize(ierr)

contains
  subroutine put(address)
    type(c_ptr), intent(in) :: address
    if (cuda_memcpy(address, c_loc(host), bytes, 4_c_int) /= 0) stop 3
  end subroutine

  subroutine expect(address, values)
    type(c_ptr), intent(in) :: address
    integer, intent(in) :: values(:)
    host = -1
    if (cuda_memcpy(c_loc(host), address, bytes, 4_c_int) /= 0) stop 3
    if (any(host /= values)) failures = failures + 1
  end subroutine
end program
