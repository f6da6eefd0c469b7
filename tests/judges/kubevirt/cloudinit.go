package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	virtv1 "kubevirt.io/api/core/v1"

	cloudinit "kubevirt.io/kubevirt/pkg/cloud-init"
)

// writer writes the files of cloud-init volumes below a folder. KubeVirt's writer has one folder for a process, so that
// it writes the files of one instance at a time.
type writer struct {
	folder string
	busy   *sync.Mutex
}

// launch is an instance that starts, and the content of the Secrets that are mounted into its pod, by volume and key.
type launch struct {
	Instance virtv1.VirtualMachineInstance `json:"instance"`
	Secrets  map[string]map[string][]byte  `json:"secrets"`
}

// ServeHTTP answers with the files of the image that virt-launcher would attach, by their paths in it. It answers with
// status 422 and virt-launcher's error if the instance could not start.
func (w writer) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	var l launch
	if err := json.NewDecoder(request.Body).Decode(&l); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	w.busy.Lock()
	defer w.busy.Unlock()
	files, err := w.write(&l)
	if err != nil {
		http.Error(response, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(files)
}

// write calls KubeVirt as SyncVMI of pkg/virt-launcher/virtwrap/manager.go does.
func (w writer) write(l *launch) (map[string][]byte, error) {
	defer os.RemoveAll(w.folder)
	secrets := filepath.Join(w.folder, "secrets")
	for volume, content := range l.Secrets {
		if err := os.MkdirAll(filepath.Join(secrets, volume), 0o700); err != nil {
			return nil, err
		}
		for key, value := range content {
			if err := os.WriteFile(filepath.Join(secrets, volume, key), value, 0o600); err != nil {
				return nil, err
			}
		}
	}
	data, err := cloudinit.ReadCloudInitVolumeDataSource(&l.Instance, secrets)
	if err != nil {
		return nil, fmt.Errorf("ReadCloudInitVolumeDataSource failed: %w", err)
	}
	if data == nil {
		return map[string][]byte{}, nil
	}
	if err := cloudinit.SetLocalDirectory(filepath.Join(w.folder, "images")); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	cloudinit.SetIsoCreationFunction(func(image, _, from string) error {
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			return err
		}
		return readFiles(from, files)
	})
	return files, cloudinit.GenerateLocalData(&l.Instance, "", data)
}

// readFiles adds the files of a folder by their paths in it.
func readFiles(folder string, files map[string][]byte) error {
	return filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files[name] = content
		return err
	})
}
