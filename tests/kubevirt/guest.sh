#!/bin/sh
# Makes the disk of guests from packages of Debian 12: guest.sh DIRECTORY. It has the checksum of this file in its name, and is not made
# again.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
number=$(cksum <"$here/guest.sh" | cut -d ' ' -f 1)

# Guests are Debian with its own kernel, cloud-init and the agent of QEMU. The boot loader is in the first sectors of the file
# system, so that the disk needs no partitions.
guest=$to/guest-$number
if ! test -f "$guest.img"; then
	debian "$guest" linux-image-cloud-amd64,initramfs-tools,systemd-sysv,udev,dbus,netplan.io,cloud-init,qemu-guest-agent,iproute2,python3 \
		--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
			echo MODULES=list >"$1/etc/initramfs-tools/conf.d/few"
			printf "%s\n" virtio_pci virtio_blk ext4 >"$1/usr/share/initramfs-tools/modules.d/virtio"'
	echo 'LABEL=root / ext4 defaults 0 1' >"$guest/etc/fstab"
	echo 'datasource_list: [NoCloud, None]' >"$guest/etc/cloud/cloud.cfg.d/99-datasource.cfg"
	for timer in apt-daily apt-daily-upgrade dpkg-db-backup fstrim e2scrub_all; do ln -sf /dev/null "$guest/etc/systemd/system/$timer.timer"; done
	kernel=$(cd "$guest" && ls boot/vmlinuz-*)
	# clearcpuid: see talos.sh.
	cat >"$guest/boot/extlinux.conf" <<EOF
SERIAL 0
DEFAULT linux
LABEL linux
KERNEL /$kernel
APPEND initrd=/boot/initrd.img-${kernel#boot/vmlinuz-} root=LABEL=root ro console=ttyS0 clearcpuid=erms,fsrm
EOF
	truncate -s 2G "$guest.part"
	# extlinux reads no newer features.
	mke2fs -q -F -t ext4 -L root -O '^64bit,^metadata_csum,^metadata_csum_seed,^orphan_file' -d "$guest" "$guest.part"
	mkdir -p "$guest.mount"
	mount -o loop "$guest.part" "$guest.mount"
	extlinux --install "$guest.mount/boot" || { umount "$guest.mount" && exit 1; }
	umount "$guest.mount"
	rm -rf "$guest" "$guest.mount"
	mv "$guest.part" "$guest.img"
fi
ln -sf "guest-$number.img" "$to/guest.img"
