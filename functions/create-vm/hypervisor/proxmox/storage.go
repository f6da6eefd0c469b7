package proxmox

import (
	"context"
	"net/url"

	pve "github.com/luthermonson/go-proxmox"
)

// hasVolume reports whether a storage of a node has a volume with a content.
func (x api) hasVolume(ctx context.Context, node, storage, content, volume string) (bool, error) {
	var volumes []struct {
		VolID string `json:"volid"`
	}
	if err := x.client.Get(ctx, "/nodes/"+node+"/storage/"+storage+"/content?content="+content, &volumes); err != nil {
		return false, err
	}
	for _, v := range volumes {
		if v.VolID == volume {
			return true, nil
		}
	}
	return false, nil
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
