package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// machineClassJSON is a size that template may name.
type machineClassJSON struct {
	Name string `json:"name"`
	// BuiltIn reports that the size exists without a MachineClass.
	BuiltIn     bool        `json:"builtIn"`
	CPUs        int64       `json:"cpus"`
	MemoryBytes int64       `json:"memoryBytes"`
	Disks       []classDisk `json:"disks"`
}

type classDisk struct {
	Name         string `json:"name"`
	Bytes        int64  `json:"bytes"`
	StorageClass string `json:"storageClass,omitempty"`
}

// machineClassesTTL bounds how long the list is cached. It is short, because a requester looks for a new MachineClass.
const machineClassesTTL = 5 * time.Second

// MachineClasses serves the sizes that template of machines and pools may name.
type MachineClasses struct {
	API *apiserver.Client
	// Cache keeps the list for at most CacheTTL.
	Cache    *cache.Cache
	CacheTTL time.Duration
	// Timeout bounds the request to the API server.
	Timeout time.Duration
	Log     *slog.Logger
}

// List serves the built-in sizes, and then the MachineClasses by name. Every caller sees all of them, because every requester chooses
// from them.
func (h *MachineClasses) List(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	const key = "machine-classes"
	if body, ok := h.Cache.Get(ctx, key); ok {
		return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
	}
	classes, err := h.API.MachineClasses(ctx)
	if err != nil {
		h.Log.Warn("Cannot read MachineClasses", "error", err.Error())
		return problem.New(http.StatusBadGateway, "MachineClasses cannot be read from the Kubernetes API: if it is available, grant the service account of the gateway list on machineclasses")
	}
	all := []machineClassJSON{}
	for _, class := range append(v1alpha1.BuiltInClasses(), classes...) {
		// The API server accepts only sizes that can be resolved.
		if size, err := machineplan.ResolveSize(v1alpha1.MachineSpec{Template: class.Name}, classes); err == nil {
			all = append(all, machineClassOf(class.Name, size))
		}
	}
	body, err := json.Marshal(map[string]any{"machineClasses": all})
	if err != nil {
		return err
	}
	h.Cache.Set(ctx, key, body, min(machineClassesTTL, h.CacheTTL))
	return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
}

func machineClassOf(name string, size machineplan.Size) machineClassJSON {
	out := machineClassJSON{Name: name, BuiltIn: v1alpha1.IsBuiltInClass(name), CPUs: size.CPUs(), MemoryBytes: size.Memory.Value()}
	for _, d := range size.Disks {
		disk := classDisk{Name: d.Name, Bytes: d.Size.Value()}
		if d.StorageClass != machineplan.DefaultClass {
			disk.StorageClass = d.StorageClass
		}
		out.Disks = append(out.Disks, disk)
	}
	return out
}
