package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRestoreSysctls changes copies of the sysctls, as kubelets change the sysctls themselves.
func TestRestoreSysctls(t *testing.T) {
	folder := t.TempDir()
	real := sysctlRoot
	t.Cleanup(func() { sysctlRoot = real })
	sysctlRoot = filepath.Join(folder, "sys")
	for _, name := range sysctls {
		path := filepath.Join(sysctlRoot, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("7\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	saved := sysctlFile(folder)
	if err := saveSysctls(saved); err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(sysctlRoot, "kernel/panic")
	if err := os.WriteFile(changed, []byte("10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restoreSysctls(saved); err != nil {
		t.Fatal(err)
	}
	if value, err := os.ReadFile(changed); err != nil || string(value) != "7" {
		t.Errorf("kernel.panic is %q, %v", value, err)
	}
	if err := restoreSysctls(saved); err != nil {
		t.Errorf("a second call: %v", err)
	}
}
