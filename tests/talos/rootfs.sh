#!/bin/sh
# Lays out the root file system of a Talos node, and the folders that become images, from the programs of build.sh and
# Debian's packages: rootfs.sh DIRECTORY. It takes seconds, because programs of build.sh are linked and not copied.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../stand/kubernetes/functions.sh"
root=$to/rootfs
images=$to/images
talos=$to/source/talos
rm -rf "$root" "$images"

place() { # place PROGRAM FILE: links a program of build.sh
	mkdir -p "$(dirname "$2")"
	ln -L "$to/bin/$1" "$2"
}

extensions=$(dirname "$(ldd "$(command -v iptables)" | grep -o '/[^ ]*libxtables[^ ]*')")/xtables

# As the Dockerfile of Talos does: /bin, /sbin, /lib and /lib64 are links into /usr.
for folder in usr/bin usr/lib usr/lib64 usr/etc proc sys dev run system/state tmp var root mnt boot/EFI opt/cni/bin opt/containerd/bin opt/containerd/lib \
	etc/iscsi etc/nvme etc/cri/conf.d/hosts etc/cni/net.d etc/kubernetes/manifests etc/containerd etc/ssl/certs etc/selinux/targeted/contexts/files etc/lvm \
	usr/libexec/kubernetes usr/local/share usr/local/lib/kubelet/credentialproviders usr/lib/modules usr/lib/firmware usr/lib/udev/rules.d \
	usr/share/zoneinfo/Etc usr/share/spdx .extra; do
	mkdir -p "$root/$folder"
done
ln -s bin "$root/usr/sbin"
for folder in bin sbin lib lib64; do ln -s usr/$folder "$root/$folder"; done
place machined "$root/usr/bin/init"
for name in poweroff shutdown reboot dashboard; do ln -s init "$root/usr/bin/$name"; done
for program in containerd containerd-shim-runc-v2; do place $program "$root/usr/bin/$program"; done
copy_programs "$root" runc mount umount nft iptables ip
touch "$root/usr/etc/in-container"
cp "$talos/hack/nfsmount.conf" "$root/etc/"
cp "$talos/hack/containerd.toml" "$root/etc/containerd/config.toml"
cp "$talos/hack/cri-containerd.toml" "$root/etc/cri/containerd.toml"
# A container without CAP_SYS_RESOURCE must not lower the OOM score of a process.
sed 's/^\( *\)enable_cdi = true$/&\n\1restrict_oom_score_adj = true/' "$talos/hack/cri-plugin.part" >"$root/etc/cri/conf.d/00-base.part"
grep -q restrict_oom_score_adj "$root/etc/cri/conf.d/00-base.part"
machinery=$(folder_of "$here/../.." github.com/siderolabs/talos/pkg/machinery)
cp "$machinery/version/os-release" "$root/etc/os-release"
for file in extensions.yaml resolv.conf hosts hostname machine-id cri/conf.d/cri.toml cri/conf.d/01-registries.part cri/conf.d/20-customization.part \
	cri/conf.d/base-spec.json ssl/certs/ca-certificates selinux/targeted/contexts/files/file_contexts iscsi/initiatorname.iscsi nvme/hostid \
	nvme/hostnqn localtime; do
	touch "$root/etc/$file"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'root:x:0:0::/root:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
for plugin in bridge host-local loopback portmap; do cp "/usr/lib/cni/$plugin" "$root/opt/cni/bin/"; done
place cni "$root/opt/cni/bin/flannel"

for program in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
	place $program "$images/$program/usr/local/bin/$program"
done
place pause "$images/pause/pause"
place coredns "$images/coredns/coredns"
place flanneld "$images/flannel/opt/bin/flanneld"
for image in kubelet kube-proxy flannel; do
	copy_programs "$images/$image" sh cp mount umount nsenter nft conntrack iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore
	mkdir -p "$images/$image/lib" "$images/$image/bin" "$images/$image/sbin" "$images/$image/usr$extensions"
	cp -r "$extensions/." "$images/$image/usr$extensions"
	for program in sh cp mount umount; do
		[ -e "$images/$image/bin/$program" ] || ln -s "../usr/bin/$program" "$images/$image/bin/$program"
	done
done
mkdir -p "$images/kubelet/lib/modules" "$images/kubelet/var/lib/kubelet"
for folder in dev proc sys run; do mkdir -p "$images/kubelet/$folder"; done
# Talos mounts /run at /var/run.
ln -s /run "$images/kubelet/var/run"
for image in "$images"/*; do
	mkdir -p "$image/etc" "$image/tmp"
	cp "$root/etc/passwd" "$root/etc/group" "$image/etc/"
	echo 'hosts: files dns' >"$image/etc/nsswitch.conf"
done
