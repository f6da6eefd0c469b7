package changes

import (
	"strings"

	"github.com/vitistack/stack/apis/changes"
)

// templateRows returns the rows of a ClusterTemplate. The fields of clusters have one proof: what becomes of a
// field in a cluster is a row of KubernetesCluster.
func templateRows() (rows []row) {
	for _, e := range changes.Of("ClusterTemplate") {
		r := row{field: e.Field, on: "template", to: "1", proof: "functions/bootstrap-talos TestTemplateFields"}
		if strings.HasPrefix(e.Field, "rollout.") {
			r.proof = "apis/cluster/template TestDecide"
		}
		rows = append(rows, r)
	}
	return rows
}
