package proxmox

import (
	"context"
	"net/url"
	"slices"

	pve "github.com/luthermonson/go-proxmox"
)

// listVolumes returns the volumes with a content on a storage of a node.
func (x api) listVolumes(ctx context.Context, node, storage, content string) ([]string, error) {
	var volumes []struct {
		VolID string `json:"volid"`
	}
	if err := x.client.Get(ctx, "/nodes/"+node+"/storage/"+storage+"/content?content="+content, &volumes); err != nil {
		return nil, err
	}
	var ids []string
	for _, v := range volumes {
		ids = append(ids, v.VolID)
	}
	return ids, nil
}

// hasVolume reports whether a storage of a node has a volume with a content. A node without the storage does not have it, and neither does a storage that an
// administrator has removed from Proxmox VE.
func (x api) hasVolume(ctx context.Context, node, storage, content, volume string) (bool, error) {
	volumes, err := x.listVolumes(ctx, node, storage, content)
	if hasMessage(err, "is not available on node") || hasMessage(err, "storage '"+storage+"' does not exist") {
		return false, nil
	}
	return slices.Contains(volumes, volume), err
}

// deleteVolume deletes a volume, and returns the task.
func (x api) deleteVolume(ctx context.Context, node, storage, volume string) (*pve.Task, error) {
	var upid pve.UPID
	err := x.client.Delete(ctx, "/nodes/"+node+"/storage/"+storage+"/content/"+url.PathEscape(volume), &upid)
	if err == nil && upid == "" {
		return &pve.Task{}, nil
	}
	return pve.NewTask(upid, x.client), err
}
