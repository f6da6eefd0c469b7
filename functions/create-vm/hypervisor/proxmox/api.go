package proxmox

import pve "github.com/luthermonson/go-proxmox"

// api is the REST API of Proxmox VE (https://pve.proxmox.com/pve-docs/api-viewer/). Its methods
// know nothing of Machines. Their errors wrap an apiError if Proxmox VE has answered.
type api struct{ client *pve.Client }
