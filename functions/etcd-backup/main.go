// Etcd-backup takes snapshots of the etcd of clusters when they are due, and keeps
// the newest of them.
package main

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const functionName = "etcd-backup"

// deliveryTimeout bounds one delivery with its snapshot. It is below the timeouts of the
// function's Trigger and Service.
const deliveryTimeout = 9 * time.Minute

// attemptTimeout is how long after its last renewal an attempt counts as ended.
const attemptTimeout = time.Minute

func main() {
	events.Run(functionName, func() (events.Handler, error) {
		client, err := kube.Connect(functionName, v1alpha1.AddToScheme, core)
		if err != nil {
			return nil, err
		}
		f := &function{kube: client, volume: os.Getenv("BACKUP_PATH"), now: time.Now, attemptTimeout: attemptTimeout}
		return f.handle, nil
	}, events.WithTimeout(deliveryTimeout))
}

var core = kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{})
