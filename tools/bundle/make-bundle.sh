#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# make-bundle.sh SOURCE BUILD OUTPUT.tar.xz CUDART: gather the built tree, its tests, and the runtimes of Debian's MPICH and
# Open MPI with all libraries they need but glibc, in a folder that runs wherever it is unpacked (see ./run in it). How xz is
# to pack it: BUNDLE_XZ, -6.
set -euo pipefail
source=$1 build=$2 output=$3 cudart=$4
lib=/usr/lib/x86_64-linux-gnu
name=$(basename "$output" .tar.xz)
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
to=$work/$name
mkdir -p "$to"/{build,test,runtime/{bin,lib/ucx,lib/openmpi/lib/openmpi3,lib/pmix2,etc/openmpi,share/openmpi},cudart,python}

fail() {
	echo "make-bundle.sh: $*" >&2
	exit 1
}

[ -d $lib/openmpi/lib/openmpi3 ] || fail "the layout of Debian's Open MPI is needed, and $lib/openmpi/lib/openmpi3 is not there"

# What was built, without objects, and the tests. Of the MPIs those that are installed: others have their runtime in the build tree.
mpis=$(cd "$build" && grep -L "$build/mpis" mpi/*/wrapper)
(cd "$build" && find emu $(dirname $mpis) -type f \( -perm -u+x -o -name '*.so*' -o -name wrapper \) ! -name '*.o' -print0 | tar -c --null -T - -f -) | tar -x -C "$to/build"
find "$build" -maxdepth 1 -type f -perm -u+x \( -name 'test_*' -o -name 'threads-rank.so' -o -name 'gpucoll-*' \) -exec cp -t "$to/build" {} +
cp -r "$source"/test/{*.py,cluster,door,emu,model,topo} "$to/test"
cp -r "$source/src" "$to/src"
cp "$source/tools/bundle/run" "$source/LICENSE" "$to"
mkdir "$to/bench" && cp "$source"/bench/{model,gpu-day}.py "$to/bench"
mkdir "$to/tools" && cp "$source/tools/gpucoll-trace" "$to/tools"
cp -L "$cudart" "$to/cudart/$(basename "$cudart")"

# The tests' harness is pure Python.
python3_dir=/usr/lib/python3/dist-packages
for module in pytest _pytest py py.py pluggy iniconfig packaging attr attrs xdist execnet; do
	[ ! -e "$python3_dir/$module" ] || cp -r "$python3_dir/$module" "$to/python"
done

# The launchers, Open MPI's and PMIx's plugins and texts. Plugins for fabrics and batch systems that a single machine does
# not have are left out, and with them their libraries.
cp -L /usr/bin/{mpiexec.hydra,hydra_pmi_proxy,orterun,orted} "$to/runtime/bin"
ln -s mpiexec.hydra "$to/runtime/bin/mpiexec.mpich"
ln -s orterun "$to/runtime/bin/mpirun.openmpi"
for plugin in $lib/openmpi/lib/openmpi3/mca_*.so; do
	case ${plugin##*/} in *_slurm.so | *_flux.so | *_jsm.so | *_gridengine.so | *_simulator.so | *_monitoring.so) continue ;; esac
	readelf -d "$plugin" | grep -qE 'NEEDED.*\[(libfabric|libpsm|libibverbs|libnl-|liboshmem|libmca_common_(ofi|verbs))' ||
		cp "$plugin" "$to/runtime/lib/openmpi/lib/openmpi3"
done
cp -r $lib/pmix2/lib $lib/pmix2/share "$to/runtime/lib/pmix2"
find "$to/runtime/lib/pmix2/lib" -name '*.so' ! -name 'pmix_mca_pcompress_zlib.so' ! -name 'pmix_mca_prm_default.so' -delete
# Debian writes the plugins' absolute folder there.
sed -i '/^mca_base_component_path/d' "$to/runtime/lib/pmix2/share/pmix-mca-params.conf"
cp /usr/share/openmpi/help-*.txt "$to/runtime/share/openmpi"
cp -L /etc/openmpi/openmpi-mca-params.conf /etc/openmpi/openmpi-default-hostfile "$to/runtime/etc/openmpi"
cp -L $lib/ucx/libuct_cma.so.0 "$to/runtime/lib/ucx"

# The libraries that all of this needs, until nothing new comes; glibc is the host's, and what was built is there: of ours there
# is one for each MPI, which programs find beside them.
glibc='^(ld-linux-x86-64\.so\.2|linux-vdso\.so\.1|lib(c|m|dl|rt|pthread|resolv|util)\.so\.[0-9]+)$'
cp -L $lib/libopen-rte.so.40 $lib/libpmix.so.2 "$to/runtime/lib"
while :; do
	before=$(find "$to/runtime/lib" | wc -l)
	while read -r library path; do
		[[ $library =~ $glibc || $path == "$to/"* ]] || [ -e "$to/runtime/lib/$library" ] || [ -e "$to/build/emu/$library" ] ||
			cp -L "$path" "$to/runtime/lib/$library"
	done < <(find "$to/build" "$to/runtime" -type f \( -name '*.so*' -o -perm -u+x \) -exec \
		env LD_LIBRARY_PATH="$to/build/emu" ldd {} + 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u)
	[ "$before" -ne "$(find "$to/runtime/lib" | wc -l)" ] || break
done

git -C "$source" rev-parse HEAD >"$to/COMMIT" 2>/dev/null || echo unknown >"$to/COMMIT"
tar -C "$work" -cf - "$name" | xz -T2 "${BUNDLE_XZ:--6}" >"$output"
echo "$output: $(du -h "$output" | cut -f1), $(du -sh "$to" | cut -f1) unpacked"
