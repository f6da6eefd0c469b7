package talos

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// cloudConfig is the first line of a file that the platform nocloud ignores
// (internal/app/machined/pkg/runtime/v1alpha1/platform/nocloud).
var cloudConfig = []byte("#cloud-config")

// readSeed returns the configuration in the seed of a machine that has none on its disk, as the
// platform nocloud reads it and the configuration controller acquires it
// (internal/app/machined/pkg/controllers/config/acquire.go):
//
//	no file, or one of cloud-init          maintenance
//	a complete machine configuration       the machine boots with it, and stores it
//	documents that are not complete        maintenance
//	anything else                          an error, repeatedly: nothing listens
//
// A machine whose disk has a complete configuration does not read its seed.
func (b *boot) readSeed() {
	n := b.node
	seed, unreadable := unzipped(n.Machine.Seed)
	if bytes.HasPrefix(seed, cloudConfig) || n.Machine.Kind != "nocloud" {
		b.maintain()
		return
	}
	cfg, _, err := b.check(seed)
	err = errors.Join(unreadable, err)
	if err == nil && !cfg.CompleteForBoot() {
		b.maintain()
		return
	}
	if err == nil {
		n.Config = seed
		err = errors.Join(n.parse(), n.save())
	}
	if err != nil {
		n.Config, n.config = nil, nil
		b.enter(runtime.MachineStageBooting)
		b.fail("load config via platform nocloud", err)
		return
	}
	b.printf("[talos] machine configuration loaded from platform nocloud")
	b.network = wiringOf(n.Machine, n.config)
	if n.needsInstall() {
		b.install()
		return
	}
	n.Volatile = false
	n.mustSave()
	b.configure()
}

// unzipped returns the content of a file that may be compressed.
func unzipped(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
