package kubevirt

import (
	"context"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
)

// bootData is the cloud-init data of an instance.
type bootData struct {
	userData    string
	networkData string
	network     networkData
}

// networkData distinguishes network data that configures no interface from missing network data.
// Without network data a guest requests leases on all interfaces.
type networkData struct {
	interfaces []cloudinit.Interface
	given      bool
}

// bootSource is the source of one part of a cloud-init volume.
type bootSource struct {
	inline, base64 string
	secret         *corev1.LocalObjectReference
	keys           []string // of the Secret; the first key that exists is used
}

func bootSources(volume virtv1.Volume) (user, network bootSource, ok bool) {
	user.keys, network.keys = []string{"userdata", "userData"}, []string{"networkdata", "networkData"}
	switch {
	case volume.CloudInitNoCloud != nil:
		c := volume.CloudInitNoCloud
		user.inline, user.base64, user.secret = c.UserData, c.UserDataBase64, c.UserDataSecretRef
		network.inline, network.base64, network.secret = c.NetworkData, c.NetworkDataBase64, c.NetworkDataSecretRef
	case volume.CloudInitConfigDrive != nil:
		c := volume.CloudInitConfigDrive
		user.inline, user.base64, user.secret = c.UserData, c.UserDataBase64, c.UserDataSecretRef
		network.inline, network.base64, network.secret = c.NetworkData, c.NetworkDataBase64, c.NetworkDataSecretRef
	default:
		return user, network, false
	}
	return user, network, true
}

// secretNames returns the Secrets that the instance's pod mounts.
func secretNames(vmi *virtv1.VirtualMachineInstance) []string {
	var names []string
	for _, volume := range vmi.Spec.Volumes {
		if user, network, ok := bootSources(volume); ok {
			for _, s := range []bootSource{user, network} {
				if s.secret != nil && s.secret.Name != "" {
					names = append(names, s.secret.Name)
				}
			}
		}
		if volume.Secret != nil && (volume.Secret.Optional == nil || !*volume.Secret.Optional) {
			names = append(names, volume.Secret.SecretName)
		}
	}
	return names
}

// startPod reports whether the instance's pod finds its networks and Secrets. While one is missing,
// the kubelet lets the pod wait and records an event about the pod. The instance itself shows nothing.
func (v *visit) startPod(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (bool, error) {
	for _, n := range vmi.Spec.Networks {
		if n.Multus == nil {
			continue
		}
		name := attachmentName(vmi.Namespace, n.Multus.NetworkName)
		if v.api.networks.get(name.Namespace, name.Name) == nil {
			v.warnPod(ctx, vmi, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: rpc error: code = Unknown "+
				"desc = failed to setup network for sandbox: plugin type=%q failed (add): Multus: cannot find a "+
				"network-attachment-definition (%s) in namespace (%s)", "multus", name.Name, name.Namespace))
			return false, nil
		}
	}
	for _, name := range secretNames(vmi) {
		_, err := v.secret(ctx, vmi.Namespace, name)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return false, err
		}
		v.warnPod(ctx, vmi, "FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : secret %q not found", name, name))
		v.lookAgain(secretRetry)
		return false, nil
	}
	return true, nil
}

func (v *visit) warnPod(ctx context.Context, vmi *virtv1.VirtualMachineInstance, reason, message string) {
	v.events.warn(ctx, "kubelet", corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: vmi.Namespace, Name: launcher(vmi), UID: podOf(vmi),
	}, reason, message)
}

// secret reads a Secret, once per visit.
func (v *visit) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if s, ok := v.secrets[name]; ok {
		return s, nil
	}
	s, err := v.api.secrets.read(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", namespace, name, err)
	}
	if v.secrets == nil {
		v.secrets = map[string]*corev1.Secret{}
	}
	v.secrets[name] = s
	return s, nil
}

// bootData returns the cloud-init data of an instance. Invalid network data configures no interface.
func (v *visit) bootData(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (bootData, error) {
	for _, volume := range vmi.Spec.Volumes {
		user, network, ok := bootSources(volume)
		if !ok {
			continue
		}
		userData, data, err := v.cloudInit(ctx, vmi, volume.Name, user, network)
		if err != nil {
			return bootData{}, err
		}
		found := bootData{userData: userData, networkData: data}
		found.network.given = data != ""
		if found.network.interfaces, err = cloudinit.Parse(data); err != nil {
			v.log.Warn("the guest does not understand its network data",
				"namespace", vmi.Namespace, "name", vmi.Name, "error", err)
		}
		return found, nil
	}
	return bootData{}, nil
}

// cloudInit returns the user data and network data that a guest finds in its cloud-init image.
func (v *visit) cloudInit(ctx context.Context, vmi *virtv1.VirtualMachineInstance, volume string, user, network bootSource) (userData, data string, err error) {
	if v.options.Judge != nil {
		return v.judgedCloudInit(ctx, vmi, volume, user, network)
	}
	if userData, err = v.content(ctx, vmi.Namespace, user); err != nil {
		return "", "", err
	}
	if data, err = v.content(ctx, vmi.Namespace, network); err != nil {
		return "", "", err
	}
	if userData == "" && data == "" {
		return "", "", fmt.Errorf("no cloud-init data-source found at volume: %s", volume)
	}
	return userData, data, nil
}

// judgedCloudInit lets KubeVirt's own code write the image. The pod mounts only the known keys of each Secret
// (pkg/virt-controller/services/rendervolumes.go).
func (v *visit) judgedCloudInit(ctx context.Context, vmi *virtv1.VirtualMachineInstance, volume string, user, network bootSource) (userData, data string, err error) {
	mounted := map[string][]byte{}
	for _, source := range []bootSource{user, network} {
		if source.secret == nil || source.secret.Name == "" {
			continue
		}
		secret, err := v.secret(ctx, vmi.Namespace, source.secret.Name)
		if err != nil {
			return "", "", err
		}
		for _, key := range source.keys {
			if content, ok := secret.Data[key]; ok {
				mounted[key] = content
			}
		}
	}
	files, err := v.options.Judge.CloudInit(ctx, vmi, map[string]map[string][]byte{volume: mounted})
	if err != nil {
		return "", "", err
	}
	first := func(names ...string) string {
		for _, name := range names {
			if content, ok := files[name]; ok {
				return string(content)
			}
		}
		return ""
	}
	return first("user-data", "openstack/latest/user_data"), first("network-config", "openstack/latest/network_data.json"), nil
}

func (v *visit) content(ctx context.Context, namespace string, s bootSource) (string, error) {
	switch {
	case s.inline != "":
		return s.inline, nil
	case s.base64 != "":
		data, err := base64.StdEncoding.DecodeString(s.base64)
		if err != nil {
			return "", fmt.Errorf("decode cloud-init data: %w", err)
		}
		return string(data), nil
	case s.secret == nil || s.secret.Name == "":
		return "", nil
	}
	secret, err := v.secret(ctx, namespace, s.secret.Name)
	if err != nil {
		return "", err
	}
	for _, k := range s.keys {
		if data, ok := secret.Data[k]; ok {
			return string(data), nil
		}
	}
	return "", nil
}

// guest returns the guest of the instance, without its network.
func (v *visit) guest(vmi *virtv1.VirtualMachineInstance, data bootData) Guest {
	g := Guest{
		ID: guestID(vmi), Name: vmi.Name, Namespace: vmi.Namespace, Node: nodeOf(vmi),
		CPUs: vcpus(vmi.Spec.Domain.CPU), UserData: data.userData, NetworkData: data.networkData,
	}
	if m := vmi.Spec.Domain.Memory; m != nil && m.Guest != nil {
		g.Memory = m.Guest.Value()
	}
	storage := v.storage(vmi.Namespace, vmi.Spec.Volumes)
	volumes := map[string]virtv1.Volume{}
	for _, volume := range vmi.Spec.Volumes {
		volumes[volume.Name] = volume
	}
	for _, d := range vmi.Spec.Domain.Devices.Disks {
		g.Disks = append(g.Disks, diskOf(d, volumes[d.Name], storage))
	}
	g.Image = bootImage(vmi.Spec.Domain.Devices.Disks, g.Disks)
	return g
}

func diskOf(d virtv1.Disk, volume virtv1.Volume, storage storageView) Disk {
	disk := Disk{Name: d.Name, Claim: volumeClaim(volume)}
	if volume.ContainerDisk != nil {
		disk.Image = volume.ContainerDisk.Image
	}
	if claim := storage.claim(disk.Claim); claim != nil {
		disk.Bytes = claim.Status.Capacity.Storage().Value()
		disk.Image = imageOf(claim)
	}
	return disk
}

// bootImage returns the image of the first disk with content that the firmware tries: disks with a
// boot order, or all disks if none has one.
func bootImage(specs []virtv1.Disk, disks []Disk) string {
	image, best, ordered := "", uint(0), false
	for _, spec := range specs {
		ordered = ordered || spec.BootOrder != nil
	}
	for i, spec := range specs {
		if disks[i].Image == "" || (ordered && spec.BootOrder == nil) {
			continue
		}
		order := uint(i) + 1
		if spec.BootOrder != nil {
			order = *spec.BootOrder
		}
		if image == "" || order < best {
			image, best = disks[i].Image, order
		}
	}
	return image
}
