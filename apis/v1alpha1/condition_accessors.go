package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StatusConditions returns the conditions of the status, which the caller may change.
func (c *KubernetesCluster) StatusConditions() *[]metav1.Condition { return &c.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (m *Machine) StatusConditions() *[]metav1.Condition { return &m.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (p *MachineProvider) StatusConditions() *[]metav1.Condition { return &p.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (n *NetworkConfiguration) StatusConditions() *[]metav1.Condition { return &n.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (b *EtcdBackup) StatusConditions() *[]metav1.Condition { return &b.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (t *ClusterTemplate) StatusConditions() *[]metav1.Condition { return &t.Status.Conditions }
