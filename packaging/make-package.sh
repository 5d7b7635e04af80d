#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# make-package.sh deb|rpm BUILD FOLDER: a package of what is built in BUILD, into FOLDER. The libraries of all MPIs that
# it was built for are in it; which of these are to be installed the package leaves to the user. Prints its name.
set -euo pipefail
[ $# -eq 3 ] && { [ "$1" = deb ] || [ "$1" = rpm ]; } || {
	echo "usage: make-package.sh deb|rpm BUILD FOLDER" >&2
	exit 2
}
kind=$1 build=$2 folder=$(realpath "$3")
version=$("$build/gpucoll-info" --version | sed -n 's/^libgpucoll //p')
summary="MPI collectives and messages on CUDA device memory, for MPI programs as they are"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
[ "$kind" = rpm ] && libdir=/usr/lib64 || libdir=/usr/lib/$(gcc -print-multiarch)

make -s -C "$build" install DESTDIR="$root" prefix=/usr libdir="$libdir" >/dev/null
sed -i "s|^prefix=.*|prefix=/usr|; s|^libdir=.*|libdir=$libdir|" "$root$libdir/pkgconfig/gpucoll.pc"
find_elf() {
	find "$1" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print
}
find_elf "$root" | xargs strip --strip-unneeded
find "$root/usr/share/man" -type f -exec gzip -9n {} +
mkdir -p "$root/usr/share/doc/libgpucoll"
cp "$(dirname "$0")"/../{LICENSE,NEWS,README.md} "$root/usr/share/doc/libgpucoll"

# Who has what the files need. The MPIs and SimGrid, which only gpucoll-sim needs, are apart, and the driver is the machine's.
find_needs() {
	mkdir -p "$work/debian" && echo "Source: libgpucoll" >"$work/debian/control"
	(cd "$work" && find_elf root | grep -v "/gpucoll/emu/" | xargs dpkg-shlibdeps --ignore-missing-info "-lroot$libdir" -O 2>"$work/said" |
		sed -n 's/^shlibs:Depends=//p')
}

make_deb() {
	local apart='^(libopenmpi|libmpich|libsimgrid|libcuda|libnvidia)' all needs mpis package=libgpucoll_${version}_$(dpkg --print-architecture).deb
	all=$(find_needs | sed 's/, /\n/g') || {
		cat "$work/said" >&2
		exit 1
	}
	needs=$( (grep -vE "$apart" <<<"$all"; echo python3; echo libhwloc15) | paste -sd, | sed 's/,/, /g')
	mpis=$( (echo libucx0; grep -E "$apart" <<<"$all" || true) | paste -sd, | sed 's/,/, /g')
	mkdir -p "$root/DEBIAN"
	cat >"$root/DEBIAN/control" <<-END
		Package: libgpucoll
		Version: $version
		Architecture: $(dpkg --print-architecture)
		Section: libs
		Priority: optional
		Maintainer: libgpucoll developers <libgpucoll@localhost>
		Installed-Size: $(du -sk "$root/usr" | cut -f1)
		Depends: $needs
		Recommends: $mpis
		Description: $summary
		 Preloaded or linked, takes collectives and messages whose buffers are in CUDA
		 device memory, and runs them as GPU kernels. With an emulated CUDA driver.
	END
	printf '#!/bin/sh\nset -e\n[ "$1" != configure ] || ldconfig\n' >"$root/DEBIAN/postinst"
	chmod 755 "$root/DEBIAN/postinst"
	dpkg-deb --root-owner-group --build "$root" "$folder/$package" >&2
	echo "$folder/$package"
}

make_rpm() {
	(cd "$root" && find . ! -type d | sed 's/^\.//') >"$work/files"
	cat >"$work/libgpucoll.spec" <<-END
		Name: libgpucoll
		Version: $version
		Release: 1
		Summary: $summary
		License: BSD-3-Clause
		Requires: python3
		Recommends: hwloc-libs ucx
		AutoReqProv: yes
		%global __requires_exclude ^lib(mpi|open-|mpich|simgrid|cuda|cudart)
		%global __provides_exclude ^lib(cuda|cudart|nccl)
		%global debug_package %{nil}
		%global __os_install_post %{nil}
		%description
		Preloaded or linked, takes collectives and messages whose buffers are in CUDA
		device memory, and runs them as GPU kernels. With an emulated CUDA driver.
		%install
		cp -a $root/. %{buildroot}
		%post -p /sbin/ldconfig
		%files -f $work/files
	END
	rpmbuild --quiet -bb --define "_topdir $work/rpm" --define "_rpmdir $work/rpms" "$work/libgpucoll.spec" >&2
	cp "$work"/rpms/*/*.rpm "$folder"
	echo "$folder/$(basename "$work"/rpms/*/*.rpm)"
}

make_"$kind"
