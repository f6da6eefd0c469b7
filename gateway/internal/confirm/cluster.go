package confirm

import (
	"context"
	"fmt"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

var clusterRequest = request{"bootstrap-talos", v1alpha1.GroupVersion.String(), "KubernetesCluster", "kubernetesclusters"}

// confirmWorkorder confirms a request for the approval that status.approval of its cluster records. A request that is decided meanwhile
// is confirmed too.
func (c *Confirmer) confirmWorkorder(ctx context.Context, in event.Event) (event.Event, error) {
	var data events.WorkorderRequested
	if err := decode(in, &data); err != nil {
		return in, err
	}
	if err := clusterRequest.check(in, data.Object, fmt.Sprintf("%s.workorder.%d", data.UID, data.Generation)); err != nil {
		return in, err
	}
	kc := &v1alpha1.KubernetesCluster{}
	exists, err := c.read(ctx, clusterRequest, data.Object, kc)
	if err != nil {
		return in, err
	}
	a := kc.Status.Approval
	if !exists || string(kc.UID) != data.UID || a == nil {
		return in, Refuse("KubernetesCluster %s/%s with the UID %s requests no approval", data.Namespace, data.Name, data.UID)
	}
	planes, workers := plan.CountMachines(a.Requested)
	want := events.WorkorderRequested{
		Object: data.Object, Workorder: a.Workorder, Generation: a.Generation, ClusterID: plan.ClusterID(kc),
		Environment: kc.Spec.Data.Environment, Project: kc.Spec.Data.Project, Workspace: kc.Spec.Data.Workspace,
		Version: string(kc.Spec.Topology.Version), ControlPlanes: planes, Workers: workers,
	}
	if data != want {
		return in, Refuse("KubernetesCluster %s/%s requests something else: generation %d, %s", data.Namespace, data.Name, a.Generation, plan.DescribePools(a))
	}
	return clusterRequest.event(in, data.Object, want)
}
