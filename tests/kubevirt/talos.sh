#!/bin/sh
# Makes a disk image of Talos from the programs of tests/talos/build.sh, its module and Debian: talos.sh TALOS TO. It is as the
# image of the platform nocloud, except for the kernel, which is the newest one in trixie-backports: Talos 1.13 needs Linux 6.15,
# to clone mounts that are not attached. TO/talos.raw.xz is a link to the image, whose name has the versions of its parts.
set -eu
talos=$1 to=$2
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../stand/kubernetes/functions.sh"
. "$here/../stand/apt.sh"
work=$to/talos

# apt with a source of its own, so that the machine's own packages stay as they are.
mkdir -p "$work/packages"
private_apt "$work/apt" trixie-backports
apt-get update -qq
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: linux-image-\([0-9].*\)/\1/p')
number=$( (cat "$here/talos.sh" "$here/initramfs/main.go" "$here/../talos/rootfs.sh" && readlink -f "$talos/bin/machined" "$talos/bin/talos-init" "$talos/bin/containerd") | cksum | cut -d ' ' -f 1)
image=talos-$kernel-$number.raw.xz
if test -f "$to/$image"; then
	ln -sf "$image" "$to/talos.raw.xz"
	exit 0
fi
echo "Making a disk image of Talos with Linux $kernel ..."

rm -rf "$work/kernel" "$work/root" "$work/initramfs" "$work/packages"/*
(cd "$work/packages" && apt-get download -qq "linux-binary-$kernel" "linux-modules-$kernel" "linux-base-$kernel")
for package in "$work/packages"/*.deb; do dpkg-deb -x "$package" "$work/kernel"; done
modules=usr/lib/modules/$kernel
find "$work/kernel/$modules" -name '*.ko.xz' -exec unxz {} +

# The root file system is the one of tests/talos, with what a machine needs in addition.
root=$work/root
cp -a "$talos/rootfs" "$root"
rm "$root/usr/etc/in-container"
copy_programs "$root" kmod udevadm lvm mkfs.xfs mkfs.vfat mkfs.ext4 xfs_growfs xfs_repair cryptsetup /usr/lib/udev/*_id
ln -s kmod "$root/usr/bin/modprobe"
ln -s udevadm "$root/usr/bin/systemd-udevd"
mkdir -p "$root/usr/lib/udev" "$root/usr/lib/systemd/network" "$root/usr/share/xfsprogs/mkfs"
cp -r /usr/lib/udev/rules.d /usr/lib/udev/hwdb.d "$root/usr/lib/udev/"
# Debian's udevadm writes its database into /etc. Talos has that folder read-only, and /usr/lib/udev writable.
ln -s ../lib/udev "$root/usr/etc/udev"
# Talos formats with the options of a kernel's release. Debian's mkfs.xfs is older than that, and lacks nrext64.
for release in 6.6 6.12 6.18; do
	sed /nrext64/d /usr/share/xfsprogs/mkfs/lts_6.1.conf >"$root/usr/share/xfsprogs/mkfs/lts_$release.conf"
done
hack=$talos/source/talos/hack
cp "$hack/udevd/99-default.link" "$root/usr/lib/systemd/network/"
cp "$hack"/udevd/*.rules "$root/usr/lib/udev/rules.d/"
cp "$hack/lvm.conf" "$root/etc/lvm/"
cp "$hack/cri-plugin.part" "$root/etc/cri/conf.d/00-base.part"
mkdir -p "$root/usr/lib/modules"
cp -r "$work/kernel/$modules" "$root/usr/lib/modules/"
depmod -b "$root" "$kernel"

initramfs=$work/initramfs
mkdir -p "$initramfs/modules"
mksquashfs "$root" "$initramfs/rootfs.sqsh" -comp lz4 -all-root -noappend -quiet -no-progress
order=10
for module in $(modprobe -d "$root" -S "$kernel" --show-depends -a loop squashfs configfs efivarfs xfs vfat isofs overlay nls_ascii \
	virtio_pci virtio_blk virtio_net virtio-rng br_netfilter | awk '$1 == "insmod" {print $2}'); do
	cp "$module" "$initramfs/modules/$order-$(basename "$module")"
	order=$((order + 1))
done
go build -C "$here" -trimpath -ldflags '-s -w' -o "$initramfs/init" ./initramfs
cp -L "$talos/bin/talos-init" "$initramfs/talos-init"

# As Talos' installer does, except for the boot loader: a partition of the boot loader, and META, which says that Talos is
# installed. Talos creates the other partitions.
disk=$work/disk
rm -rf "$work/boot" "$disk"
mkdir -p "$work/boot" "$work/mount"
cp "$work/kernel/$modules/vmlinuz" "$work/boot/vmlinuz"
(cd "$initramfs" && find . | cpio -o -H newc -R 0:0 --quiet) >"$work/boot/initramfs.img"
# nopti, and what follows: an emulated processor flushes its translation cache each time that it changes page tables, and Talos
# requires pti=on. clearcpuid: the kernel copies with "rep movsb" on a processor with these features, four times slower than without it on
# an emulated one. oops=panic is the default of Talos' kernel.
cat >"$work/boot/extlinux.conf" <<'EOF'
SERIAL 0
DEFAULT talos
LABEL talos
KERNEL /vmlinuz
APPEND initrd=/initramfs.img console=ttyS0 talos.platform=nocloud talos.dashboard.disabled=1 slab_nomerge= pti=on nopti mitigations=off init_on_alloc=0 tsc=reliable clearcpuid=erms,fsrm oops=panic printk.devkmsg=on consoleblank=0
EOF
truncate -s 1G "$disk"
sgdisk -n 1:2048:+600M -t 1:8300 -c 1:BOOT -A 1:set:2 -n 2:0:+1M -t 2:8300 -c 2:META "$disk" >/dev/null
truncate -s 600M "$work/boot.img"
# Written through a mount, so that the files have no holes: extlinux cannot read them.
mke2fs -q -F -t ext4 -O '^64bit,^metadata_csum,^metadata_csum_seed,^orphan_file' "$work/boot.img"
mount -o loop "$work/boot.img" "$work/mount"
cp --sparse=never "$work/boot"/* "$work/mount/"
extlinux --install "$work/mount" >/dev/null 2>&1 || { umount "$work/mount" && exit 1; }
umount "$work/mount"
dd if="$work/boot.img" of="$disk" bs=1M seek=1 conv=notrunc status=none
dd if=/usr/lib/EXTLINUX/gptmbr.bin of="$disk" conv=notrunc status=none
xz -1 -T0 -c "$disk" >"$disk.xz"
mv "$disk.xz" "$to/$image"
ln -sf "$image" "$to/talos.raw.xz"
rm -rf "$work/root" "$work/initramfs" "$work/boot" "$work/boot.img" "$work/kernel" "$work/packages" "$disk"
