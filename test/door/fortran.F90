! SPDX-License-Identifier: BSD-3-Clause
!
! Collectives on device memory through one of Fortran's three bindings, chosen by -DBINDING=1 (mpif.h), 2 (use mpi) or
! 3 (use mpi_f08): out of place, MPI_IN_PLACE, and a broadcast under MPI_BOTTOM.
program door
  use iso_c_binding
#if BINDING == 3
  use mpi_f08
#elif BINDING == 2
  use mpi
#endif
  implicit none
#if BINDING == 1
  include 'mpif.h'
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
  integer :: ierr, rank, ranks, i, failures, all_failures
  integer :: lengths(1)
  integer(MPI_ADDRESS_KIND) :: places(1)
#if BINDING == 3
  type(MPI_Datatype) :: absolute
#else
  integer :: absolute
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

  call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(i0, a, i0, a)', 3 * ranks - all_failures, ' checks passed, ', all_failures, ' failed'
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
