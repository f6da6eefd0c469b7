package talos

import "github.com/siderolabs/talos/pkg/machinery/constants"

// What a simulated Talos is made of. It is the same for every version, because
// nobody decides by it.
const (
	kernelVersion     = "6.18.44"
	containerdVersion = constants.DefaultContainerdVersion
	etcdVersion       = "3.6.12"
)
