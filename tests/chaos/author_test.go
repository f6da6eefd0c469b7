package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// step is one thing that happens in a story.
type step struct {
	// pause is the time before it.
	pause time.Duration
	do    func(*env)
}

// want is what an object has to come to: a phase, or the reason for which it is not
// Ready where somebody has made a mistake.
type want struct{ phase, reason string }

// being is an object of a story, as it was asked for.
type being struct {
	subject
	want want
	// mend takes a mistake back.
	mend string
	// minor, controls, workers and provider are those of a cluster.
	minor, controls, workers int
	provider                 string
	of                       *being // the cluster that an EtcdBackup is of
}

// author tells a story: what happens next follows from the seed and from what the
// story has told, and from nothing that the stack does. So a story can be told
// again, and told without some of its steps.
type author struct {
	random *rand.Rand
	living []*being
	next   int
	// long is whether there is time for what takes minutes.
	long bool
}

// step is what happens next.
func (a *author) step() step {
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	for {
		at := a.random.IntN(total)
		for _, d := range deeds {
			if at -= d.weight; at >= 0 {
				continue
			}
			if do := d.tell(a); do != nil {
				return step{time.Duration(100+a.random.IntN(500)) * time.Millisecond, do}
			}
			break
		}
	}
}

// create tells that an object is made.
func (a *author) create(b *being, kind string, version string, spec map[string]any) func(*env) {
	a.living = append(a.living, b)
	s, w := b.subject, b.want
	manifest := map[string]any{"apiVersion": "vitistack.io/" + version, "kind": kind, "spec": spec}
	return func(world *env) { world.create(s, w, manifest) }
}

// patch tells that an object's spec is changed.
func (a *author) patch(b *being, merge string) func(*env) {
	s, w := b.subject, b.want
	return func(world *env) { world.patch(s, w, merge) }
}

// remove tells that objects are deleted.
func (a *author) remove(all ...*being) func(*env) {
	var subjects []subject
	for _, b := range all {
		subjects = append(subjects, b.subject)
		a.living = slices.DeleteFunc(a.living, func(other *being) bool { return other == b })
	}
	return func(world *env) {
		for _, s := range subjects {
			world.remove(s)
		}
	}
}

// pick is one of what lives of a kind and fits.
func (a *author) pick(resource schema.GroupVersionResource, fits func(*being) bool) *being {
	var all []*being
	for _, b := range a.living {
		if b.resource == resource && (fits == nil || fits(b)) {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[a.random.IntN(len(all))]
}

func (a *author) count(resource schema.GroupVersionResource) int {
	n := 0
	for _, b := range a.living {
		if b.resource == resource {
			n++
		}
	}
	return n
}

// named is an object with a name that was not used before.
func (a *author) named(resource schema.GroupVersionResource, namespace, prefix string, w want) *being {
	a.next++
	return &being{subject: subject{resource, namespace, fmt.Sprintf("%s-%d", prefix, a.next)}, want: w}
}

func (a *author) of(all ...string) string { return all[a.random.IntN(len(all))] }

// chance is true in one of n cases.
func (a *author) chance(n int) bool { return a.random.IntN(n) == 0 }

func right(b *being) bool { return b.mend == "" }

// topology is what a cluster is asked to be.
func (b *being) topology() map[string]any {
	version := fmt.Sprintf("1.%d", b.minor)
	pool := map[string]any{"name": "pool", "replicas": b.workers, "version": version}
	controls := map[string]any{"replicas": b.controls, "version": version}
	if b.provider != "" {
		pool["providerRef"] = map[string]any{"name": b.provider}
		controls["providerRef"] = map[string]any{"name": b.provider}
	}
	return map[string]any{"version": version, "controlplane": controls, "workers": []any{pool}}
}

// asked is a cluster's topology as a merge patch.
func (b *being) asked() string {
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"topology": b.topology()}})
	if err != nil {
		panic(err) // it is made of strings and numbers
	}
	return string(text)
}

// networkSpec is the spec of the network of a namespace. Those that describe
// themselves get a half each of the engine's addresses, which begin with base.
func networkSpec(namespace, base string) map[string]any {
	spec := map[string]any{"datacenterIdentifier": "no-west-az1", "supervisorIdentifier": "test"}
	static := map[string]any{"type": "static"}
	spec["ipAllocation"] = static
	for i, own := range []string{"chaos-a", "chaos-b"} {
		if namespace != own {
			continue
		}
		first := i * 128
		at := func(n int) string { return fmt.Sprintf("%s.%d", base, first+n) }
		spec["networkProvisioning"] = map[string]any{"provider": "manual", "manual": map[string]any{
			"ipv4CIDR": at(0) + "/25", "ipv4Gateway": at(1), "vlanId": 100 + i,
		}}
		static["static"] = map[string]any{"ipv4RangeStart": at(2), "ipv4RangeEnd": at(126)}
		return spec
	}
	spec["networkProvisioning"] = sourced(map[string]string{"chaos-c": "nam", "chaos-d": "netbox", "chaos-e": "tour-ipam"}[namespace])
	if namespace == "chaos-d" {
		spec["ipAllocation"] = map[string]any{"type": "dhcp"}
	}
	return spec
}

// sourced is a network that a source provides.
func sourced(provider string) map[string]any {
	how := map[string]any{"provider": provider}
	switch provider {
	case "nam":
		how["nam"] = map[string]any{"ipFamilies": []any{"IPv4"}, "ipv4PrefixLength": 26}
	case "netbox":
		how["netbox"] = map[string]any{"role": "tenants", "ipv4PrefixLength": 26, "vlanGroup": "tenants"}
	default:
		how["parameters"] = map[string]any{"prefixLength": "26"}
	}
	return how
}
