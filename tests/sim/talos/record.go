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

// record is what a machine keeps on its disks, and what is plugged into it.
type record struct {
	Machine Machine `json:"machine"`
	// Installed tells that a system disk holds Talos.
	Installed bool `json:"installed,omitempty"`
	// Release is what the system disk boots; before the installation it is what
	// the boot image holds.
	Release release `json:"release"`
	// Previous is what a rollback boots.
	Previous *release `json:"previous,omitempty"`
	// Next is an upgrade that takes effect with the next boot.
	Next *release `json:"next,omitempty"`
	// Config is the persisted machine configuration.
	Config []byte `json:"config,omitempty"`
	// Volatile tells that Config has not reached a disk: it was accepted before
	// the installation, and is lost with the power.
	Volatile bool `json:"volatile,omitempty"`
	// Staged is a configuration that takes effect with the next boot.
	Staged []byte `json:"staged,omitempty"`
	// KubeletCA is the authority that signed the kubelet's client certificate,
	// absent while the kubelet has none.
	KubeletCA []byte `json:"kubeletCA,omitempty"`
	// Etcd is the data directory, absent while it is empty.
	Etcd *etcdData `json:"etcd,omitempty"`
	// Recovery is an uploaded snapshot that a bootstrap can recover from.
	Recovery []byte `json:"recovery,omitempty"`
	// Images are what was pulled.
	Images []pulled `json:"images,omitempty"`
}

// release is one installed Talos.
type release struct {
	Version string `json:"version"`
	// Image is the installer image it came from, empty for the boot image's own.
	Image string `json:"image,omitempty"`
}

// etcdData names the cluster and the member a data directory belongs to.
type etcdData struct {
	Cluster uint64 `json:"cluster"`
	Member  uint64 `json:"member"`
}

// clusterRecord is what the machines of one cluster share.
type clusterRecord struct {
	// Key identifies the cluster by its ID.
	Key string `json:"key"`
	// Etcd is absent until the cluster is bootstrapped.
	Etcd *etcd.Cluster `json:"etcd,omitempty"`
}

// disk is the directory that holds the state of a fleet.
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

// save replaces a file as a whole: a killed process leaves the old or the new
// one. It does not sync, because the state has to survive the process and not
// the host.
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
