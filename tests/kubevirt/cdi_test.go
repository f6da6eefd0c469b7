package kubevirt

import (
	"context"
	_ "embed"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
)

//go:embed manifests/cdi.yaml
var cdiManifest string

// imageServer is where CDI downloads images.
const imageServer = kubernetes.Address + ":5002"

// installCDI applies the manifests of CDI's release. KubeVirt is installed later, because its programs restart when the kinds of CDI appear.
func (e *env) installCDI() {
	e.T.Helper()
	operator, err := os.ReadFile(filepath.Join(folder(), "manifests", "cdi.yaml"))
	if err != nil {
		e.T.Fatal(err)
	}
	e.Apply(kubernetes.WithAddresses("{apiVersion: v1, kind: Namespace, metadata: {name: cdi}}\n" + string(operator)))
	e.Apply(cdiManifest)
	e.Await("CDI is available", 5*time.Minute, func(ctx context.Context) error { return e.RequireReady(ctx, "Available", "cdi") })
	e.Step("CDI is available")
}

// serveImages serves files of the folder of build.sh at paths of imageServer until the test ends. A path may have the wildcards of http.ServeMux.
func (e *env) serveImages(files map[string]string) {
	e.T.Helper()
	mux := http.NewServeMux()
	for path, file := range files {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(folder(), file)) })
	}
	e.ServeAt(imageServer, mux)
}
