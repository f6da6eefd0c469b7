package talos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vitistack/stack/tests/sim/talos/internal/etcd"
)

// record has the content of a machine's disks and its hardware.
type record struct {
	Machine Machine `json:"machine"`
	// Installed is whether the system disk contains Talos.
	Installed bool `json:"installed,omitempty"`
	// Release is what the system disk boots. Before the installation it is the release of the boot
	// image.
	Release release `json:"release"`
	// Previous is what a rollback boots.
	Previous *release `json:"previous,omitempty"`
	// Next is an upgrade that takes effect at the next boot.
	Next *release `json:"next,omitempty"`
	// Config is the persistent machine configuration.
	Config []byte `json:"config,omitempty"`
	// Volatile is whether Config is not on a disk: it was accepted before the installation, and a
	// power cut loses it.
	Volatile bool `json:"volatile,omitempty"`
	// Staged is a configuration that takes effect at the next boot.
	Staged []byte `json:"staged,omitempty"`
	// KubeletCA is the authority that signed the kubelet's client certificate. It is empty without a
	// certificate.
	KubeletCA []byte `json:"kubeletCA,omitempty"`
	// Etcd is the data directory, or nil if it is empty.
	Etcd *etcdData `json:"etcd,omitempty"`
	// Recovery is an uploaded snapshot, from which a bootstrap can recover.
	Recovery []byte `json:"recovery,omitempty"`
	// Volumes are the provisioned volumes, by name.
	Volumes map[string]volume `json:"volumes,omitempty"`
	// KernelArguments are the arguments that an installation has written into the boot loader. A disk image has none.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// Images are the pulled images.
	Images []pulled `json:"images,omitempty"`
}

// release is one installed Talos.
type release struct {
	Version string `json:"version"`
	// Image is the installer image that it was installed from. It is empty for the boot image's own.
	Image string `json:"image,omitempty"`
}

// etcdData identifies the cluster and the member of a data directory.
type etcdData struct {
	Cluster uint64 `json:"cluster"`
	Member  uint64 `json:"member"`
}

// clusterRecord is the state that the machines of one cluster share.
type clusterRecord struct {
	// Key identifies the cluster by its ID.
	Key string `json:"key"`
	// Etcd is nil until the cluster is bootstrapped.
	Etcd *etcd.Cluster `json:"etcd,omitempty"`
}

// disk is the directory with the state of a fleet.
type disk struct{ dir string }

func openDisk(dir string) (disk, error) {
	d := disk{dir}
	for _, sub := range []string{d.machines(), d.clusters()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return d, err
		}
		leftovers, err := filepath.Glob(filepath.Join(sub, ".*-*"))
		if err != nil {
			return d, err
		}
		for _, path := range leftovers { // of a write that was killed
			if err := remove(path); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

func (d disk) machines() string { return filepath.Join(d.dir, "machines") }
func (d disk) clusters() string { return filepath.Join(d.dir, "clusters") }

func (d disk) machine(id string) string  { return filepath.Join(d.machines(), id+".json") }
func (d disk) cluster(key string) string { return filepath.Join(d.clusters(), key+".json") }
func (d disk) journal(key string) string { return filepath.Join(d.clusters(), key+".journal") }

// save replaces a file atomically: a killed process leaves the old or the new one. It does not sync,
// because the state has to survive the process, not the host.
func (d disk) save(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".save-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Close()); err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return os.Rename(temp.Name(), path)
}

// load decodes every *.json file of a directory.
func load[T any](dir string) ([]T, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []T
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var one T
		if err := json.Unmarshal(data, &one); err != nil {
			return nil, fmt.Errorf("decode %s: %w", path, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
