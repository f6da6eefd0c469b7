package main

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestBurn(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "u"}}
	image, err := burn(m, firstConfig{userData: "#cloud-config\n{}\n", networkData: "version: 2\n"})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 4 << 20
	if len(image) > limit {
		t.Errorf("the CD has %d bytes", len(image))
	}
	for _, want := range []string{"CD001", "cidata", "#cloud-config", "version: 2", "local-hostname: vm"} {
		if !bytes.Contains(image, []byte(want)) {
			t.Errorf("the CD lacks %q", want)
		}
	}
}
