# SPDX-License-Identifier: BSD-3-Clause
#
# What exists once for each MPI found, in mpi/<name>/: libgpucoll.so.0, gpucoll-bench and the test programs. The MPI's
# own compiler wrapper compiles and links, driving the compiler that configure chose.

SONAME = libgpucoll.so.0
CORE_MPI = comm/core_mpi_graph.c core_mpi_args.c core_mpi_async.c core_mpi_bound.c core_mpi_check.c core_mpi_check_find.c core_mpi_check_thread.c core_mpi_comm.c core_mpi_enqueue.c core_mpi_group.c core_mpi_fused.c core_mpi_packed.c core_mpi_late.c core_mpi_order.c core_mpi_ordered.c core_mpi_queued.c core_mpi_persistent.c core_mpi_revoke.c job/core_mpi_clock.c job/core_mpi_drive.c job/core_mpi_job.c job/core_mpi_muster.c \
	mpi/core_mpi_arithmetic.c mpi/core_mpi_blocks.c mpi/core_mpi_extreme.c mpi/core_mpi_fold.c mpi/core_mpi_half.c mpi/core_mpi_hold.c mpi/core_mpi_kept.c mpi/core_mpi_name.c \
	mpi/core_mpi_operands.c mpi/core_mpi_parts.c mpi/core_mpi_predefined.c mpi/core_mpi_raise.c mpi/core_mpi_runs.c mpi/core_mpi_shape.c mpi/core_mpi_type.c \
	io/core_mpi_io.c rma/core_mpi_rma.c p2p/core_mpi_exchange.c p2p/core_mpi_message.c p2p/core_mpi_pack.c p2p/core_mpi_side.c p2p/core_mpi_trial.c \
	request/core_mpi_freed.c request/core_mpi_pending.c request/core_mpi_request.c request/core_mpi_request_several.c request/core_mpi_several.c request/core_mpi_start.c request/core_mpi_table.c request/core_mpi_waiting.c
MPI_OBJECTS = $(notdir $(CORE_MPI:.c=.o)) pmpi_call.o pmpi_callback.o pmpi_init.o pmpi_query.o pmpi_release.o pmpi_session.o pmpi_spawn.o pmpi_stream.o wrappers.o
MPI_TEST_PROGRAMS = pieces/$(NCCL_SONAME) test_nccl test_agree test_async test_queue test_coll test_desync test_io test_stream test_fused test_message test_ordered test_rma test_half test_types test_life test_edges test_callbacks test_sessions demo
MPI_BENCH_PROGRAMS = buffer-pairs gpucoll-bench gpucoll-tune messages mixed nccl-bench overhead streams
NCCL_OBJECTS = nccl_absent.o nccl_call.o nccl_comm.o nccl_driver.o nccl_error.o nccl_group.o nccl_memory.o nccl_number.o nccl_pieces.o nccl_type.o
NCCL_SONAME = libnccl.so.2
MPI_LIBS = $(MPI_NAMES:%=mpi/%/$(SONAME)) $(MPI_NAMES:%=mpi/%/nccl/$(NCCL_SONAME))
MPI_BENCH = $(foreach m,$(MPI_NAMES),$(MPI_BENCH_PROGRAMS:%=mpi/$(m)/%))
MPI_TESTS = $(foreach m,$(MPI_NAMES),$(MPI_TEST_PROGRAMS:%=mpi/$(m)/%))

mpi_wrapper = $(word $(2),$(1))
mpi_cc = OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(1)
MPI_COMPILE = $(DEFS) $(AM_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -MMD -MP
EMU_LINK = -Lemu -l:$(CUDART_SO) -l:libcuda.so.1
VERSION_SCRIPT = $(top_srcdir)/src/pmpi/exports.map

mpi/wrappers.c: $(top_srcdir)/src/pmpi/gen-wrappers.py $(top_srcdir)/src/pmpi/prototypes.txt
	$(AM_V_at)$(MKDIR_P) mpi
	$(AM_V_GEN)$(PYTHON) $^ >$@.tmp && mv $@.tmp $@

vpath core_mpi_%.c $(addprefix $(top_srcdir)/src/core/,$(sort $(dir $(CORE_MPI))))
vpath pmpi_%.c $(top_srcdir)/src/pmpi
vpath nccl_%.c $(top_srcdir)/src/nccl

# $(1): name; $(2): wrapper
define mpi_rules
mpi/$(1)/%.o: %.c
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CC)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) -c -o $$@ $$<
mpi/$(1)/wrappers.o: mpi/wrappers.c
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CC)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) -c -o $$@ $$<
mpi/$(1)/$(SONAME): $(MPI_OBJECTS:%=mpi/$(1)/%) libgpucoll-common.a $(VERSION_SCRIPT)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=$(VERSION_SCRIPT) \
		$(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $$@ $(MPI_OBJECTS:%=mpi/$(1)/%) \
		-Wl,--whole-archive libgpucoll-common.a -Wl,--no-whole-archive $(COMMON_LIBS)
	$$(AM_V_at)$(LN_S) -f $(SONAME) mpi/$(1)/libgpucoll.so
	$$(AM_V_at)echo '$(2)' >mpi/$(1)/wrapper
mpi/$(1)/nccl/$(NCCL_SONAME): $(NCCL_OBJECTS:%=mpi/$(1)/%) mpi/$(1)/$(SONAME) $(top_srcdir)/src/nccl/nccl.map $(top_srcdir)/include/gpucoll/nccl.h
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_at)sed -nE 's/^(ncclResult_t|const char|void) \*?(nccl[A-Za-z]+)\(.*/--defsym=p\2=\2/p' $(top_srcdir)/include/gpucoll/nccl.h >$$(@D)/profiling
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) -shared -Wl,-soname,$(NCCL_SONAME) -Wl,--version-script=$(top_srcdir)/src/nccl/nccl.map \
		$(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $$@ $(NCCL_OBJECTS:%=mpi/$(1)/%) -Wl,@$$(@D)/profiling -Lmpi/$(1) -l:$(SONAME) \
		-Wl,-rpath,'$$$$ORIGIN/..' -lpthread -ldl -lm
	$$(AM_V_at)$(LN_S) -f $(NCCL_SONAME) mpi/$(1)/nccl/libnccl.so
mpi/$(1)/test_nccl: $(top_srcdir)/test/nccl/test_nccl.c mpi/$(1)/nccl_number.o mpi/$(1)/nccl/$(NCCL_SONAME) emu/.stamp
	$$(AM_V_CCLD)$(CC) $$(MPI_COMPILE) -I$(top_srcdir)/test/nccl $(LDFLAGS) -o $$@ $$< mpi/$(1)/nccl_number.o -Lmpi/$(1)/nccl -l:$(NCCL_SONAME) \
		-Wl,-rpath,'$$$$ORIGIN/nccl' -Wl,-rpath-link,mpi/$(1) -Wl,--allow-shlib-undefined $(EMU_LINK) -lm
# For the tests: NCCL's interface with few elements in a call of MPI.
mpi/$(1)/nccl_call_pieces.o: $(top_srcdir)/src/nccl/nccl_call.c
	$$(AM_V_CC)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) -DNCCL_MOST=1000 -DNCCL_PIECE=3000 -c -o $$@ $$<
mpi/$(1)/pieces/$(NCCL_SONAME): mpi/$(1)/nccl_call_pieces.o mpi/$(1)/nccl/$(NCCL_SONAME)
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) -shared -Wl,-soname,$(NCCL_SONAME) $(AM_CFLAGS) $(CFLAGS) $(LDFLAGS) -o $$@ \
		$(subst nccl_call.o,nccl_call_pieces.o,$(NCCL_OBJECTS:%=mpi/$(1)/%)) -Wl,@mpi/$(1)/nccl/profiling -Lmpi/$(1) -l:$(SONAME) \
		-Wl,-rpath,'$$$$ORIGIN/..' -lpthread -ldl -lm
mpi/$(1)/gpucoll-bench: $(top_srcdir)/bench/gpucoll-bench.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(JANSSON_CFLAGS) $(EMU_LINK) $(JANSSON_LIBS)
mpi/$(1)/gpucoll-tune: $(top_srcdir)/tools/gpucoll-tune.c mpi/$(1)/$(SONAME) libgpucoll-common.a emu/.stamp
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< libgpucoll-common.a mpi/$(1)/$(SONAME) \
		-Wl,-rpath,'$$$$ORIGIN:$(libdir)/gpucoll/$(1)' $(EMU_LINK) $(COMMON_LIBS)
mpi/$(1)/%: $(top_srcdir)/test/mpi/%.c $(top_srcdir)/test/mpi/test.h $(top_srcdir)/test/mpi/gpucoll_weak.h emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK) -lpthread -ldl -lm
mpi/$(1)/buffer-pairs: $(top_srcdir)/bench/buffer-pairs.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK)
mpi/$(1)/messages: $(top_srcdir)/bench/messages.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK) -ldl
mpi/$(1)/mixed: $(top_srcdir)/bench/mixed.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK)
mpi/$(1)/nccl-bench: $(top_srcdir)/bench/nccl.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK) -ldl
mpi/$(1)/streams: $(top_srcdir)/bench/streams.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< $(EMU_LINK)
mpi/$(1)/overhead: $(top_srcdir)/bench/overhead.c emu/.stamp
	$$(AM_V_at)$$(MKDIR_P) $$(@D)
	$$(AM_V_CCLD)$$(call mpi_cc,$(2)) $$(MPI_COMPILE) $(LDFLAGS) -o $$@ $$< -ldl
install-mpi-$(1): mpi/$(1)/$(SONAME) mpi/$(1)/nccl/$(NCCL_SONAME) mpi/$(1)/gpucoll-bench mpi/$(1)/gpucoll-tune
	$(MKDIR_P) $(DESTDIR)$(libdir)/gpucoll/$(1)/nccl
	$(INSTALL_PROGRAM) mpi/$(1)/nccl/$(NCCL_SONAME) $(DESTDIR)$(libdir)/gpucoll/$(1)/nccl
	$(LN_S) -f $(NCCL_SONAME) $(DESTDIR)$(libdir)/gpucoll/$(1)/nccl/libnccl.so
	$(INSTALL_PROGRAM) mpi/$(1)/$(SONAME) mpi/$(1)/gpucoll-bench mpi/$(1)/gpucoll-tune $(DESTDIR)$(libdir)/gpucoll/$(1)
	$(LN_S) -f $(SONAME) $(DESTDIR)$(libdir)/gpucoll/$(1)/libgpucoll.so
-include $(wildcard mpi/$(1)/*.d)
endef
$(foreach i,$(shell seq $(words $(MPI_NAMES))),$(eval \
	$(call mpi_rules,$(word $(i),$(MPI_NAMES)),$(word $(i),$(MPI_WRAPPERS)))))

.PHONY: demo-programs install-mpi uninstall-mpi
demo-programs: $(MPI_NAMES:%=mpi/%/demo)
install-mpi: $(MPI_NAMES:%=install-mpi-%) emu/.stamp
	$(LN_S) -f gpucoll/$(MPI_DEFAULT)/$(SONAME) $(DESTDIR)$(libdir)/$(SONAME)
	$(LN_S) -f $(SONAME) $(DESTDIR)$(libdir)/libgpucoll.so
	$(MKDIR_P) $(DESTDIR)$(bindir) $(DESTDIR)$(libdir)/gpucoll/emu
	$(INSTALL_PROGRAM) emu/libcuda.so.1 emu/$(CUDART_SO) $(DESTDIR)$(libdir)/gpucoll/emu
	$(INSTALL_PROGRAM) mpi/$(MPI_DEFAULT)/gpucoll-bench mpi/$(MPI_DEFAULT)/gpucoll-tune $(DESTDIR)$(bindir)
uninstall-mpi:
	rm -rf $(DESTDIR)$(libdir)/gpucoll
	rm -f $(DESTDIR)$(libdir)/libgpucoll.so $(DESTDIR)$(libdir)/$(SONAME) $(DESTDIR)$(bindir)/gpucoll-bench $(DESTDIR)$(bindir)/gpucoll-tune

# ---- the emulated CUDA driver and runtime ----
EMU_OBJECTS = emu_capture.o emu_config.o emu_context.o emu_copy.o emu_fatbin.o emu_heap.o emu_kernel.o emu_library.o emu_memory.o emu_module.o emu_pool.o emu_ptx.o emu_stream.o emu_value.o
CUDART_OBJECTS = emu_cudart.o emu_cudart_kernel.o
PTX_OBJECTS = ptx_async.o ptx_barrier.o ptx_block.o ptx_convert.o ptx_declare.o ptx_float.o ptx_float8.o ptx_frame.o ptx_host.o ptx_integer.o ptx_lanes.o ptx_memory.o ptx_opcode.o ptx_parse.o \
	ptx_special.o ptx_statement.o ptx_symbols.o ptx_warp.o ptx_watch.o ptx_words.o
EMU_TWINS = gpu_await.o gpu_exchange.o gpu_execute.o gpu_probe.o gpu_runs.o gpu_verify.o emu_test_kernels.o
EMU_COMPILE = $(CC) -D_GNU_SOURCE -I$(top_srcdir)/src $(CUDA_CPPFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) -fvisibility=hidden -MMD -MP
EMU_LD = $(CC) -shared $(AM_CFLAGS) $(CFLAGS) $(LDFLAGS)
REAL_CUDA = $(CUDA_LIBDIR)/stubs/libcuda.so
REAL_CUDART = $(CUDA_LIBDIR)/$(CUDART_SO)

EMU_TWIN = $(CXX) -x c++ -std=gnu++17 -fPIC -I$(top_srcdir)/src $(WARN_CFLAGS) $(SAN_FLAGS) $(CXXFLAGS) -O3 -fno-strict-aliasing -ffp-contract=off \
	-fvisibility=hidden
emu/%.o: $(top_srcdir)/src/gpu/kernels/%.cu
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CXX)$(EMU_TWIN) -MMD -MP -c -o $@ $<
emu/%.o: $(top_srcdir)/test/emu/%.cu
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CXX)$(EMU_TWIN) -MMD -MP -c -o $@ $<
emu/%.o: $(top_srcdir)/test/emu/%.c
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CC)$(EMU_COMPILE) -c -o $@ $<
# Rounding changes while it runs.
emu/ptx_%.o: $(top_srcdir)/test/emu/ptx/ptx_%.c
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CC)$(EMU_COMPILE) -O2 -frounding-math -ffp-contract=off -fno-strict-aliasing -c -o $@ $<
emu/driver_stubs.c: $(EMU_OBJECTS:%=emu/%) $(top_srcdir)/test/emu/gen-stubs.py
	$(AM_V_GEN)$(PYTHON) $(top_srcdir)/test/emu/gen-stubs.py $(REAL_CUDA) cu $(EMU_OBJECTS:%=emu/%) >$@.tmp && mv $@.tmp $@
emu/runtime_stubs.c: $(CUDART_OBJECTS:%=emu/%) $(top_srcdir)/test/emu/gen-stubs.py
	$(AM_V_GEN)$(PYTHON) $(top_srcdir)/test/emu/gen-stubs.py $(REAL_CUDART) cuda $(CUDART_OBJECTS:%=emu/%) >$@.tmp && mv $@.tmp $@
emu/libcuda.so.1: $(EMU_OBJECTS:%=emu/%) $(PTX_OBJECTS:%=emu/%) $(EMU_TWINS:%=emu/%) emu/driver_stubs.c
	$(AM_V_CCLD)$(EMU_LD) -Wl,-soname,libcuda.so.1 -o $@ $^ -lpthread -lm -ldl
emu/runtime.map:
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_GEN)echo '$(CUDART_SO) { global: cuda*; __cuda*; local: *; };' >$@
emu/$(CUDART_SO): $(CUDART_OBJECTS:%=emu/%) emu/emu_config.o emu/runtime_stubs.c emu/libcuda.so.1 emu/runtime.map
	$(AM_V_CCLD)$(EMU_LD) -Wl,-soname,$(CUDART_SO) -Wl,--version-script=emu/runtime.map -o $@ \
		$(CUDART_OBJECTS:%=emu/%) emu/emu_config.o emu/runtime_stubs.c -Lemu -l:libcuda.so.1
emu/.stamp: emu/libcuda.so.1 emu/$(CUDART_SO) emu/yield_shim.so emu/emu_ucp.so emu/nvml/libnvidia-ml.so.1
	$(AM_V_at)touch $@
-include $(wildcard emu/*.d)

# Preloaded by the test harness; never installed.
emu/yield_shim.so: $(top_srcdir)/test/mpi/yield_shim.c
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CCLD)$(CC) -D_GNU_SOURCE -std=gnu11 -fPIC $(WARN_CFLAGS) $(CFLAGS) -shared -o $@ $< -ldl
emu/nvml/libnvidia-ml.so.1: $(top_srcdir)/test/emu/emu_no_nvml.c
	$(AM_V_at)$(MKDIR_P) emu/nvml
	$(AM_V_CCLD)$(CC) -std=gnu11 -fPIC $(WARN_CFLAGS) $(CFLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $<
emu/emu_ucp.so: $(top_srcdir)/test/emu/emu_ucp.c
	$(AM_V_at)$(MKDIR_P) emu
	$(AM_V_CCLD)$(CC) -std=gnu11 -fPIC $(WARN_CFLAGS) $(CUDA_CPPFLAGS) $(UCX_CFLAGS) $(CFLAGS) -shared -o $@ $< -ldl
