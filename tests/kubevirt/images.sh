#!/bin/sh
# Makes the images of KubeVirt and CDI from the programs of build.sh and packages of Debian 12: images.sh DIRECTORY. The folder of packages has
# the checksum of this file in its name, and is not made again.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
number=$(cksum <"$here/images.sh" | cut -d ' ' -f 1)
images=$to/images
source=$to/source/kubevirt

# virt-launcher, virt-handler, cdi-controller and cdi-importer share an image. The releases have CentOS Stream with the same programs.
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

rm -rf "$images"
mkdir -p "$images"
cp -al "$launcher" "$images/virt-launcher"
place() { # place IMAGE FILE: copies a program of build.sh into an image
	mkdir -p "$images/$1/usr/bin"
	cp -L "$to/bin/$2" "$images/$1/usr/bin/$2"
}
for program in virt-launcher virt-launcher-monitor virt-probe virt-freezer virt-tail container-disk virt-handler virt-chroot cdi-controller cdi-importer; do place virt-launcher $program; done
cp "$source/cmd/virt-launcher/node-labeller/node-labeller.sh" "$images/virt-launcher/usr/bin/"
chmod 755 "$images/virt-launcher/usr/bin/node-labeller.sh"
# As in the release: virt-launcher gives this capability to libvirt.
setcap cap_net_bind_service=+ep "$images/virt-launcher/usr/bin/virt-launcher-monitor"
for program in virt-operator virt-api virt-controller cdi-operator cdi-apiserver cdi-uploadproxy pause coredns; do
	place $program $program
	mkdir -m 1777 "$images/$program/tmp"
done
