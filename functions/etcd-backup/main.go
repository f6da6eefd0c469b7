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

// deliveryTimeout is for a snapshot to be on its way. It is below the timeouts of
// the function's Trigger and Service.
const deliveryTimeout = 9 * time.Minute

// patience is for a delivery that has died to be noticed.
const patience = time.Minute

func main() {
	events.Run(functionName, func() (events.Handler, error) {
		client, err := kube.Connect(functionName, v1alpha1.AddToScheme, core)
		if err != nil {
			return nil, err
		}
		f := &function{kube: client, volume: os.Getenv("BACKUP_PATH"), now: time.Now, patience: patience}
		return f.handle, nil
	}, events.WithTimeout(deliveryTimeout))
}

var core = kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{})
