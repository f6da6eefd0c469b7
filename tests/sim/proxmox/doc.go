// Package proxmox simulates the API of a cluster of Proxmox VE 9.
//
// It checks parameters by name, type, format and limits as the API's own
// description does, answers with Proxmox VE's reason phrases and bodies, and does
// the slow part of each change in a task with a UPID. Machines, volumes and pools
// are on several nodes and storages with finite capacity. The Guests of its Options
// run the guests in the machines.
//
// # Faults
//
// A plan has these operations. Latency delays them.
//
//	GET /nodes/pve1/...   a call, by its method and its path below /api2/json. An error
//	                      that is a number is answered as that HTTP status, the text
//	                      "reset" breaks the connection, and any other text is a status
//	                      500 with that reason; after the effect it is a lost
//	                      acknowledgement
//	task/qmcreate         a task, by its type. Before its effect it fails with the text,
//	                      after it, it does its work and then fails. The text
//	                      "unexpected status" before its effect is a worker that was
//	                      killed: a VMID stays claimed, with the lock
//
// # What is simulated
//
// API tokens, with and without privileges of their own, tickets with CSRF tokens,
// and grants that deeper paths and pools replace or add to; 400 with an error for each parameter, 401,
// 403 with path and privilege, 500 with the first line of the message as reason
// phrase, 501 for what does not exist, 595 for a node that does not answer; a VMID
// that is claimed when a call is accepted, and released when its task fails; the
// digest of a configuration, its lock, and one task at a time for each machine;
// what is rewritten in a new configuration; changes that remain pending on a running
// machine; cloud-init's drive and uploaded CDs; full and
// linked clones; growing disks; protection; thin pools that are full, and hosts
// that start more machines than their memory is for; downloads that do not overwrite files.
//
// # What is not simulated
//
// There are no containers, snapshots, backups, migrations, replication, SDN zones or
// consoles. High availability moves a machine when Recover says so, and starts and stops those of ManageHA. The firewall has options only, and the guest
// agent network interfaces only. Machines never stop by themselves. A volume takes
// its full size. Nothing is downloaded: an image is identified by its URL, and has
// 4 GiB.
package proxmox
