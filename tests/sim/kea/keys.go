package kea

// globalKeys are the parameters of Dhcp4.
var globalKeys = []string{
	"allocator", "authoritative", "boot-file-name", "cache-max-age", "cache-threshold", "calculate-tee-times", "client-classes", "comment",
	"config-control", "control-socket", "control-sockets", "ddns-conflict-resolution-mode", "ddns-generated-prefix",
	"ddns-override-client-update", "ddns-override-no-update", "ddns-qualifying-suffix", "ddns-replace-client-name", "ddns-send-updates",
	"ddns-ttl", "ddns-ttl-percent", "ddns-update-on-renew", "ddns-use-conflict-resolution", "decline-probation-period", "dhcp-ddns",
	"dhcp-queue-control", "dhcp4o6-port", "early-global-reservations-lookup", "echo-client-id", "expired-leases-processing",
	"hooks-libraries", "host-reservation-identifiers", "hostname-char-replacement", "hostname-char-set", "hosts-database",
	"hosts-databases", "interfaces-config", "ip-reservations-unique", "lease-database", "loggers", "match-client-id",
	"max-valid-lifetime", "min-valid-lifetime", "multi-threading", "next-server", "offer-lifetime", "option-data", "option-def",
	"parked-packet-limit", "rebind-timer", "renew-timer", "reservations", "reservations-global", "reservations-in-subnet",
	"reservations-lookup-first", "reservations-out-of-pool", "sanity-checks", "server-hostname", "server-tag", "shared-networks",
	"stash-agent-options", "statistic-default-sample-age", "statistic-default-sample-count", "store-extended-info", "subnet4",
	"t1-percent", "t2-percent", "user-context", "valid-lifetime",
}

// subnetKeys are the parameters of a subnet.
var subnetKeys = []string{
	"4o6-interface", "4o6-interface-id", "4o6-subnet", "allocator", "authoritative", "boot-file-name", "cache-max-age",
	"cache-threshold", "calculate-tee-times", "client-class", "client-classes", "comment", "ddns-generated-prefix",
	"ddns-override-client-update", "ddns-override-no-update", "ddns-qualifying-suffix", "ddns-replace-client-name",
	"ddns-send-updates", "ddns-update-on-renew", "evaluate-additional-classes", "hostname-char-replacement", "hostname-char-set",
	"id", "interface", "match-client-id", "max-valid-lifetime", "min-valid-lifetime", "next-server", "offer-lifetime", "option-data",
	"pools", "rebind-timer", "relay", "renew-timer", "require-client-classes", "reservations", "reservations-global",
	"reservations-in-subnet", "reservations-out-of-pool", "server-hostname", "store-extended-info", "subnet", "t1-percent",
	"t2-percent", "user-context", "valid-lifetime",
}

// hostKeys are the parameters of a reservation in addition to its identifier.
var hostKeys = []string{
	"boot-file-name", "client-classes", "comment", "hostname", "ip-address", "next-server", "option-data", "server-hostname",
	"user-context",
}
