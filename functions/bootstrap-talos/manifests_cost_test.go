package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// TestManifestsCost saves manifests, one after another, and counts the requests.
func TestManifestsCost(t *testing.T) {
	t.Parallel()
	s, listens, client := newRecordedEnv(t)
	kc := s.cluster("shop", 1, 1)
	s.create(kc)
	store := &manifests.Store{Kube: client}
	created := kc.DeepCopy()
	meta.SetStatusCondition(&created.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionMachinesCreated, Status: metav1.ConditionTrue, Reason: "MachinesCreated"})
	const get, post, patch = "GET configmaps/shop-manifests", "POST configmaps", "PATCH configmaps/shop-manifests"
	large := strings.Repeat("#", 600<<10)
	for _, step := range []struct {
		reason  string
		kc      *v1alpha1.KubernetesCluster
		file    string
		content string
		want    []string
		saved   string
	}{
		{"a new cluster has none", kc, "shop-cp-0.yaml", "a", []string{post}, "a"},
		{"another delivery has created it", kc, "shop-cp-0.yaml", "b", []string{post, get, patch}, "b"},
		{"a second call changes nothing", kc, "shop-cp-0.yaml", "b", []string{post, get}, "b"},
		{"a cluster with machines has it", created, "shop-cp-0.talos.yaml", "c", []string{get, patch}, "c"},
		{"a second call changes nothing", created, "shop-cp-0.talos.yaml", "c", []string{get}, "c"},
		{"a large file has room", created, "shop-cp-2.talos.yaml", large, []string{get, patch}, large},
		{"both exceed the limit", created, "shop-cp-1.talos.yaml", large, []string{get, patch}, "# This file of 600 KiB is not saved, because its ConfigMap would exceed 1 MiB.\n"},
	} {
		listens.last = nil
		if err := store.Save(t.Context(), step.kc, map[string][]byte{step.file: []byte(step.content)}); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if !slices.Equal(listens.last, step.want) {
			t.Errorf("%s: requested %v, want %v", step.reason, listens.last, step.want)
		}
		cm := &corev1.ConfigMap{}
		if err := s.kube.Get(t.Context(), s.namespace, "shop-manifests", cm); err != nil || cm.Data[step.file] != step.saved {
			t.Errorf("%s: %s has %.50q: %v", step.reason, step.file, cm.Data[step.file], err)
		}
		if first := cm.Data["shop-cp-0.yaml"]; first == "" {
			t.Errorf("%s: the first file is gone", step.reason)
		}
	}
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shop-manifests-pool-0"}, Data: map[string]string{"a": "b"}})
	for _, of := range []*v1alpha1.KubernetesCluster{kc, created} {
		err := store.Save(t.Context(), of, map[string][]byte{"shop-pool-0.yaml": []byte("a")})
		if problem, ok := reconcile.AsUserError(err); !ok || problem.Reason != "NameTaken" {
			t.Errorf("the ConfigMap of another owner: got %v, want the UserError NameTaken", err)
		}
	}
	other := &corev1.ConfigMap{}
	if err := s.kube.Get(t.Context(), s.namespace, "shop-manifests-pool-0", other); err != nil || len(other.Data) != 1 {
		t.Errorf("the ConfigMap of another owner has %v: %v", other.Data, err)
	}
}
