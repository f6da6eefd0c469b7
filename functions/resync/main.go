// Resync asks for another look at every object that is not settled. It repairs
// what was lost on the way: events, replies, and functions that died.
package main

import (
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const name = "resync"

func main() {
	events.Run(name, func() (events.Handler, error) {
		client, err := kube.Connect(name, v1alpha1.AddToScheme, v1alpha2.AddToScheme)
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		f := &function{api: client, sender: sender, now: time.Now}
		return sender.Require(f.handle), nil
	})
}
