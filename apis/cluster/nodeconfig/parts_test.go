package nodeconfig

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

const (
	encrypted = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n    - slot: 0\n      nodeID: {}\n"
	static    = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n    - slot: 0\n      static: {passphrase: PASS}\n"
	legacy    = "machine:\n  systemDiskEncryption:\n    ephemeral:\n      provider: luks2\n      keys:\n        - slot: 0\n          nodeID: {}\n"
	state     = "machine:\n  systemDiskEncryption:\n    state:\n      provider: luks2\n      keys:\n        - slot: 0\n          nodeID: {}\n"
	limited   = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n  maxSize: SIZE\n"
	fixed     = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n  grow: false\n  maxSize: SIZE\n"
	mounted   = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nmount:\n  secure: false\n"
	user      = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: system_disk\n  minSize: SIZE\n"
	growing   = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: system_disk\n  minSize: 1GiB\n  grow: true\n  maxSize: SIZE\n"
	raw       = "apiVersion: v1alpha1\nkind: RawVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: system_disk\n  minSize: SIZE\n"
	swap      = "apiVersion: v1alpha1\nkind: SwapVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: system_disk\n  minSize: SIZE\n"
	disk      = "machine:\n  disks:\n    - device: /dev/vdb\n      partitions:\n        - mountpoint: /var/mnt/data\n          size: SIZE\n"
	kernel    = "machine:\n  install:\n    extraKernelArgs: [quiet]\n"
	swappy    = "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"
	elsewhere = "machine:\n  install:\n    disk: /dev/vdb\n    wipe: true\n"
	etcd      = "cluster:\n  etcd:\n    extraArgs:\n      election-timeout: \"5000\"\n"
)

func sized(patch, size string) string { return strings.Replace(patch, "SIZE", size, 1) }

// keys generates the keys of a cluster once, because that takes a second.
var keys = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent)
})

// render returns a configuration as the stack renders it, with patches.
func render(t *testing.T, kind machine.Type, patches ...string) config.Provider {
	t.Helper()
	bundle, err := keys()
	if err != nil {
		t.Fatal(err)
	}
	in, err := generate.NewInput("shop", "https://192.0.2.1:6443", "1.34.1", generate.WithInstallDisk("/dev/vda"), generate.WithSecretsBundle(bundle))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := in.Config(kind)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(cfg), load(t, patches...))
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err = patched.Config(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func load(t *testing.T, patches ...string) []configpatcher.Patch {
	t.Helper()
	all, err := configpatcher.LoadPatches(patches)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func one(patch string) []string {
	if patch == "" {
		return nil
	}
	return []string{patch}
}

var compared = map[string]struct {
	before, after string
	newNode       string
	atReboot      bool
}{
	"nothing":                                   {},
	"a setting of a running node":               {after: swappy},
	"where new nodes are installed":             {after: elsewhere},
	"a mount option":                            {after: mounted},
	"encryption of EPHEMERAL":                   {after: encrypted, newNode: "encryption of EPHEMERAL"},
	"no encryption any more":                    {before: encrypted, newNode: "encryption of EPHEMERAL"},
	"the same encryption in the other document": {before: legacy, after: encrypted},
	"encryption of STATE":                       {after: state, newNode: "encryption of STATE"},
	"a key of another type":                     {before: encrypted, after: static, newNode: "encryption of EPHEMERAL"},
	"a limit of EPHEMERAL":                      {after: sized(limited, "8GiB"), newNode: "volume EPHEMERAL"},
	"a higher limit of EPHEMERAL":               {before: sized(limited, "8GiB"), after: sized(limited, "9GiB"), atReboot: true},
	"a lower limit of EPHEMERAL":                {before: sized(limited, "8GiB"), after: sized(limited, "7GiB"), newNode: "volume EPHEMERAL"},
	"no limit of EPHEMERAL any more":            {before: sized(limited, "8GiB"), atReboot: true},
	"a higher limit of one that does not grow":  {before: sized(fixed, "8GiB"), after: sized(fixed, "9GiB"), newNode: "volume EPHEMERAL"},
	"a new user volume":                         {after: sized(user, "1GiB")},
	"no user volume any more":                   {before: sized(user, "1GiB")},
	"another user volume of the name":           {before: sized(user, "1GiB"), after: sized(user, "2GiB"), newNode: "user volume data"},
	"a user volume that grows further":          {before: sized(growing, "2GiB"), after: sized(growing, "3GiB"), atReboot: true},
	"another raw volume of the name":            {before: sized(raw, "1GiB"), after: sized(raw, "2GiB"), newNode: "raw volume data"},
	"another swap volume of the name":           {before: sized(swap, "1GiB"), after: sized(swap, "2GiB"), newNode: "swap volume data"},
	"a new disk":                                {after: sized(disk, "1GB")},
	"other partitions of a disk":                {before: sized(disk, "1GB"), after: sized(disk, "2GB"), newNode: "disk /dev/vdb"},
	"an argument of the kernel":                 {after: kernel},
	"no argument of the kernel any more":        {before: kernel, newNode: "kernel arguments"},
	"settings of etcd":                          {after: etcd, atReboot: true},
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, tc := range compared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := render(t, machine.TypeControlPlane, one(tc.before)...), render(t, machine.TypeControlPlane, one(tc.after)...)
			if got := strings.Join(Read(before).Compare(Read(after)).NewNode, ", "); got != tc.newNode {
				t.Errorf("only a new node gets %q, want %q", got, tc.newNode)
			}
			if got := NeedsReboot(before, after); got != tc.atReboot {
				t.Errorf("applied at the next boot: %t, want %t", got, tc.atReboot)
			}
			stored, known := Parse(Read(before).String())
			if !known || !reflect.DeepEqual(stored, Read(before)) {
				t.Errorf("the parts %v are read again as %v", Read(before), stored)
			}
			if ofPatches, err := PartsOf(load(t, one(tc.after)...)); err != nil || !reflect.DeepEqual(ofPatches, Read(after)) {
				t.Errorf("patches alone have the parts %v, and rendered ones %v: %v", ofPatches, Read(after), err)
			}
		})
	}
	if NeedsReboot(render(t, machine.TypeWorker), render(t, machine.TypeWorker, etcd)) {
		t.Error("a worker has no etcd that starts again")
	}
	if strings.Contains(Read(render(t, machine.TypeWorker, static)).String(), "PASS") {
		t.Error("the parts contain a passphrase")
	}
	for _, text := range []string{"", "null", "[]", "no JSON"} {
		if _, known := Parse(text); known {
			t.Errorf("%q are parts", text)
		}
	}
}

// TestKeep checks that a node keeps exactly what only a new node gets, and gets the rest.
func TestKeep(t *testing.T) {
	t.Parallel()
	for name, tc := range compared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := render(t, machine.TypeWorker, one(tc.before)...), render(t, machine.TypeWorker, append(one(tc.after), swappy)...)
			kept, err := Keep(before, after)
			if err != nil {
				t.Fatal(err)
			}
			if change := Read(before).Without(kernelArguments).Compare(Read(kept)); len(change.NewNode) > 0 {
				t.Errorf("a node would get %v, which only a new node gets", change.NewNode)
			}
			if kept.Machine().Sysctls()["vm.swappiness"] != "1" {
				t.Error("the node does not get what Talos applies to a running node")
			}
			again, err := Keep(kept, after)
			if err != nil || encode(t, again) != encode(t, kept) {
				t.Errorf("a second call returns another configuration: %v\n%s\n%s", err, encode(t, kept), encode(t, again))
			}
			if change := Read(before).Compare(Read(after)); len(change.NewNode) == 0 && tc.before != legacy && encode(t, kept) != encode(t, after) {
				t.Errorf("something is withheld although the node can get everything:\n%s\n%s", encode(t, after), encode(t, kept))
			}
		})
	}
}

// TestKeepKeys checks that a node keeps the keys of its encrypted volumes: with another key it could not open them.
func TestKeepKeys(t *testing.T) {
	t.Parallel()
	before := render(t, machine.TypeWorker, strings.Replace(static, "PASS", "former", 1))
	kept, err := Keep(before, render(t, machine.TypeWorker, strings.Replace(static, "PASS", "latter", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if text := encode(t, kept); !strings.Contains(text, "former") || strings.Contains(text, "latter") {
		t.Errorf("the node gets another key:\n%s", text)
	}
}

// TestWithInstalled checks that a configuration does not change what a node was installed with.
func TestWithInstalled(t *testing.T) {
	t.Parallel()
	ephemeral := volumePart("EPHEMERAL")
	plain, secret := Parts{"other": "a"}, Parts{"other": "b", encryptionPart("STATE"): "c", encryptionPart("EPHEMERAL"): "d", kernelArguments: "e", ephemeral: "x<=5"}
	if got, want := secret.WithInstalled(plain), (Parts{"other": "b"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := plain.WithInstalled(secret), (Parts{"other": "a", encryptionPart("STATE"): "c", encryptionPart("EPHEMERAL"): "d", kernelArguments: "e", ephemeral: "x<=5"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (Parts{ephemeral: "x<=6"}).WithInstalled(secret)[ephemeral]; got != "x<=6" {
		t.Errorf("EPHEMERAL that may grow is %s", got)
	}
	if got := secret.Without(encryptionPart("STATE"), kernelArguments); len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

// TestMissing checks what a node lacks of the configuration that it runs.
func TestMissing(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	removed := strings.Replace(kernel, "quiet", "-quiet", 1)
	for name, tc := range map[string]struct {
		reason, patch string
		has           Installed
		want          string
	}{
		"Plain":             {"nothing is wanted", "", Installed{EphemeralSize: 9 * gib}, ""},
		"Encryption":        {"Talos encrypts a volume when it formats it", encrypted, Installed{}, "encryption of EPHEMERAL"},
		"Encrypted":         {"it has it", encrypted, Installed{Encrypted: []string{"EPHEMERAL"}}, ""},
		"Legacy encryption": {"Talos reads both documents", state, Installed{}, "encryption of STATE"},
		"Limit":             {"Talos makes no volume smaller", sized(limited, "8GiB"), Installed{EphemeralSize: 9 * gib}, "volume EPHEMERAL"},
		"Limited":           {"it has it", sized(limited, "8GiB"), Installed{EphemeralSize: 8 * gib}, ""},
		"Small":             {"it grows at the next boot", sized(limited, "8GiB"), Installed{EphemeralSize: 7 * gib}, ""},
		"Relative":          {"the size of the disk is not known", sized(limited, "80%"), Installed{EphemeralSize: 9 * gib}, ""},
		"Arguments":         {"nothing installs a disk image", kernel, Installed{KernelArguments: []string{"quieter", "console=ttyS0"}}, "kernel arguments"},
		"With arguments":    {"it has them", kernel, Installed{KernelArguments: []string{"quiet"}}, ""},
		"Removed":           {"it is gone", removed, Installed{}, ""},
		"Not removed":       {"the image has it", removed, Installed{KernelArguments: []string{"quiet=1"}}, "kernel arguments"},
	} {
		if got := strings.Join(tc.has.Missing(render(t, machine.TypeWorker, one(tc.patch)...)), ", "); got != tc.want {
			t.Errorf("%s: the node lacks %q, want %q, because %s", name, got, tc.want, tc.reason)
		}
	}
}

func TestAddsKernelArguments(t *testing.T) {
	t.Parallel()
	cfg := render(t, machine.TypeWorker, kernel)
	for name, tc := range map[string]struct {
		has  Parts
		want bool
	}{"nothing": {nil, true}, "others": {Parts{kernelArguments: "x"}, true}, "the same": {Read(cfg), false}} {
		if got := tc.has.AddsKernelArguments(cfg); got != tc.want {
			t.Errorf("a node with %s: %t, want %t", name, got, tc.want)
		}
	}
	if (Parts{kernelArguments: "x"}).AddsKernelArguments(render(t, machine.TypeWorker)) {
		t.Error("a configuration without arguments adds some")
	}
}

func encode(t *testing.T, cfg config.Provider) string {
	t.Helper()
	text, err := cfg.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
