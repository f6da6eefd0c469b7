#!/bin/sh
# Makes the images of KubeVirt and the disk of guests from the programs of build.sh and packages of Debian 12: images.sh
# DIRECTORY. Folders and disks of packages have the checksum of this file in their name, and are not made again.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
number=$(cksum <"$here/images.sh" | cut -d ' ' -f 1)
images=$to/images
source=$to/source/kubevirt

debian() { # debian FOLDER PACKAGES [OPTION...]: installs packages into a new folder
	echo "Installing Debian into $1 ..."
	folder=$1 packages=$2
	shift 2
	rm -rf "$folder"
	mmdebstrap --quiet --variant=minbase --include="$packages" --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' "$@" bookworm "$folder"
	rm -rf "$folder"/dev/* "$folder"/var/lib/apt/* "$folder"/var/cache/*
}

# virt-launcher and virt-handler share an image. The release has CentOS Stream with the same programs.
launcher=$to/launcher-$number
if ! test -f "$launcher.complete"; then
	debian "$launcher" libvirt-daemon,libvirt-daemon-driver-qemu,libvirt-clients,qemu-system-x86,qemu-utils,xorriso,nftables,procps
	# Debian's libvirt has another name for the user of QEMU.
	for name in qemu libvirt-qemu; do
		echo "$name:x:107:107::/home/qemu:/bin/bash" >>"$launcher/etc/passwd"
		echo "$name:x:107:" >>"$launcher/etc/group"
	done
	# virt-handler follows the link from its own root.
	ln -sfn ../run "$launcher/var/run"
	mkdir -p "$launcher/etc/libvirt/hooks" "$launcher/var/log/libvirt"
	cp "$source/cmd/virt-launcher/qemu.conf" "$source/cmd/virt-launcher/virtqemud.conf" "$launcher/etc/libvirt/"
	cp "$source/cmd/virt-launcher/qemu" "$launcher/etc/libvirt/hooks/"
	touch "$launcher/etc/libvirt/virtlogd.conf"
	# Debian's libvirt is one daemon. Without the other drivers it is virtqemud, except for the name of its socket.
	find "$launcher/usr/lib" -path '*/libvirt/connection-driver/*' ! -name '*_qemu.so' -type f -delete
	cat >"$launcher/usr/sbin/virtqemud" <<'EOF'
#!/bin/sh
mkdir -p /run/libvirt
ln -sf libvirt-sock /run/libvirt/virtqemud-sock
exec /usr/sbin/libvirtd "$@"
EOF
	chmod 755 "$launcher/usr/sbin/virtqemud" "$launcher/etc/libvirt/hooks/qemu"
	touch "$launcher.complete"
fi

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
	cat >"$guest/boot/extlinux.conf" <<EOF
SERIAL 0
DEFAULT linux
LABEL linux
KERNEL /$kernel
APPEND initrd=/boot/initrd.img-${kernel#boot/vmlinuz-} root=LABEL=root ro console=ttyS0
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

rm -rf "$images"
mkdir -p "$images"
cp -al "$launcher" "$images/virt-launcher"
place() { # place IMAGE FILE: copies a program of build.sh into an image
	mkdir -p "$images/$1/usr/bin"
	cp -L "$to/bin/$2" "$images/$1/usr/bin/$2"
}
for program in virt-launcher virt-launcher-monitor virt-probe virt-freezer virt-tail container-disk virt-handler virt-chroot; do place virt-launcher $program; done
cp "$source/cmd/virt-launcher/node-labeller/node-labeller.sh" "$images/virt-launcher/usr/bin/"
chmod 755 "$images/virt-launcher/usr/bin/node-labeller.sh"
# As in the release: virt-launcher gives this capability to libvirt.
setcap cap_net_bind_service=+ep "$images/virt-launcher/usr/bin/virt-launcher-monitor"
for program in virt-operator virt-api virt-controller pause coredns; do
	place $program $program
	mkdir -m 1777 "$images/$program/tmp"
done
