package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// orphans has the function check for orphans, and returns the report in the ConfigMap with its
// resourceVersion.
func (w *env) orphans() (report v1alpha1.OrphanReport, version string) {
	w.t.Helper()
	w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync))
	c := &corev1.ConfigMap{}
	w.must(w.kube.Get(w.t.Context(), w.namespace, v1alpha1.ConfigMapOrphans, c))
	if text := c.Data[v1alpha1.OrphansInKea]; text != "" {
		w.must(json.Unmarshal([]byte(text), &report))
	}
	return report, c.ResourceVersion
}

// TestOrphanedReservations deletes a NetworkConfiguration without its reservation. Another one is
// being deleted, and Kea has a reservation of another owner.
func TestOrphanedReservations(t *testing.T) {
	foreign := stand.Subnet{ID: 7, Subnet: "10.78.0.0/24", Reservations: []stand.Reservation{{HWAddress: "52:54:00:00:00:0c", IPAddress: "10.78.0.9"}}}
	onEach(t, stand.Options{Subnets: []stand.Subnet{foreign}}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.ConfigMapOrphans}}))
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("lost", []string{macA}, nil)
		w.configuration("going", []string{macB}, nil)
		lost, _ := w.reconcile("lost"), w.reconcile("going")
		before, address := lost.DeepCopy(), addressOf(t, lost, 0)
		lost.Finalizers = nil
		_, err := w.kube.Patch(t.Context(), before, lost)
		w.must(err)
		w.delete("lost")
		w.delete("going")
		if found, _ := w.orphans(); len(found.Orphans) != 1 || found.Orphans[0].Confirmed || found.Message != "" {
			t.Errorf("one check confirms no orphan: %+v", found)
		}
		w.clock.Pass(10 * time.Minute)
		found, version := w.orphans()
		if len(found.Orphans) != 1 || found.Orphans[0].UID != string(lost.UID) || found.Orphans[0].Name != w.namespace+"/lost" || !found.Orphans[0].Confirmed {
			t.Errorf("got %+v", found)
		}
		for _, want := range []string{address, w.namespace + "/lost", `{"command":"reservation-del"`, `"identifier":"` + macA + `"`} {
			if !strings.Contains(found.Message, want) {
				t.Errorf("the message lacks %s: %s", want, found.Message)
			}
		}
		w.clock.Pass(10 * time.Minute)
		if _, again := w.orphans(); again != version {
			t.Error("a check with an unchanged result has written")
		}
		w.f = w.function([]string{b.URL(), "http://127.0.0.1:1"})
		if found, again := w.orphans(); again != version || len(found.Orphans) != 1 {
			t.Errorf("while a server is down, orphans are unknown: %+v", found)
		}
		w.f = w.function([]string{b.URL()}, "KEA_SHARED=true")
		if found, _ := w.orphans(); len(found.Orphans) != 0 {
			t.Errorf("the marker does not say which of several installations created a reservation: %+v", found)
		}
		w.f = w.function([]string{b.URL()})
		if got := len(hosts(t, b)); got != 3 {
			t.Errorf("the checks have removed reservations: %d are left", got)
		}
		if found, _ := w.orphans(); len(found.Orphans) != 1 {
			t.Errorf("the orphan still exists: %+v", found)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
		if found, _ := w.orphans(); len(found.Orphans) != 0 || found.Message != "" {
			t.Errorf("the orphan is removed, but reported: %+v", found)
		}
	})
}
