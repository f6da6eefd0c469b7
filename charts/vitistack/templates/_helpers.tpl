{{/* An image by its name: (dict "root" $ "name" "gateway"). */}}
{{- define "vitistack.image" -}}
{{- $i := .root.Values.image -}}
{{- with index (default dict $i.digests) .name -}}
{{ printf "%s/%s@%s" $i.repository $.name . }}
{{- else -}}
{{ printf "%s/%s:%s" $i.repository .name (default .root.Chart.AppVersion $i.tag) }}
{{- end -}}
{{- end -}}

{{- define "vitistack.labels" -}}
app.kubernetes.io/part-of: vitistack
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* A value of an environment variable. Helm reads numbers as floating point, and prints 1048576 as 1.048576e+06. */}}
{{- define "vitistack.text" -}}
{{- if and (kindIs "float64" .) (eq (float64 (int64 .)) .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/* The environment that a function has, its own and what the values give, as a list: (dict "root" $ "name" "kea-reserve" "own" $container.env). */}}
{{- define "vitistack.env" -}}
{{- $v := .root.Values -}}
{{- $env := dict -}}
{{- if eq .name "kea-reserve" -}}
  {{- $subnets := list -}}
  {{- range $v.kea.allowedSubnets }}{{ $subnets = append $subnets (include "vitistack.text" .) }}{{ end -}}
  {{- $env = dict "KEA_URL" $v.kea.url "KEA_SECONDARY_URL" $v.kea.secondaryUrl "KEA_TLS_SECRET_NAME" $v.kea.tlsSecret "KEA_ALLOWED_SUBNETS" (join "," $subnets) -}}
  {{- if $v.kea.shared }}{{ $_ := set $env "KEA_SHARED" "true" }}{{ end -}}
  {{- if $v.kea.tlsSecret }}{{ $_ := set $env "KEA_TLS_ENABLED" "true" }}{{ end -}}
{{- else if eq .name "provision-network" -}}
  {{- $env = dict "NAM_URL" $v.nam.url "NAM_TLS_SECRET_NAME" $v.nam.tlsSecret "NETBOX_URL" $v.netbox.url "NETBOX_TLS_SECRET_NAME" $v.netbox.tlsSecret -}}
  {{- if $v.netbox.shared }}{{ $_ := set $env "NETBOX_SHARED" "true" }}{{ end -}}
{{- else if eq .name "bootstrap-talos" -}}
  {{- $env = dict "TALOS_VERSION" $v.talos.version "IMAGE_FACTORY" $v.talos.imageFactory "TALOS_SCHEMATIC" $v.talos.schematic "ALLOWED_ADDON_HOSTS" (join "," $v.addons.allowedHosts) "NODE_EVENTS_ENDPOINT" (($v.nodeEvents).endpoint | default "") -}}
{{- else if eq .name "create-vm" -}}
  {{- $env = dict "IMAGE_FACTORY" $v.talos.imageFactory "ALLOWED_IMAGE_HOSTS" (join "," $v.images.allowedHosts) "CREDENTIALS_NAMESPACES" (join "," $v.credentials.namespaces) -}}
{{- end -}}
{{- range .own }}{{ $_ := set $env .name .value }}{{ end -}}
{{- $given := default dict (index $v.functions .name).env -}}
{{- include "vitistack.checkHidden" (dict "root" .root "own" $env "given" $given "name" .name "place" (print "functions." .name ".env")) -}}
{{- if hasKey $given "NETWORK_POOLS" }}{{ fail (printf "functions.%s.env.NETWORK_POOLS would leave the rights of vitistack-edit as they are: write networkPools: %s" .name (index $given "NETWORK_POOLS")) }}{{ end -}}
{{- range $k, $x := $given }}{{ $_ := set $env $k $x }}{{ end -}}
{{- $list := list -}}
{{- range $k, $x := $env }}{{ if or (hasKey $given $k) (ne (toString $x) "") }}{{ $list = append $list (dict "name" $k "value" (include "vitistack.text" $x)) }}{{ end }}{{ end -}}
{{ dict "list" $list | toYaml }}
{{- end -}}

{{/* Refuses a variable of config.env that has no effect, because the container has a value of its own, which takes precedence over the ConfigMap: (dict "root" $ "own" (dict of the container's values) "given" (dict of the values that replace them) "name" "kea-reserve" "place" "functions.kea-reserve.env"). */}}
{{- define "vitistack.checkHidden" -}}
{{- range $k, $x := .own -}}
{{- if and (hasKey (default dict $.root.Values.config.env) $k) (not (hasKey $.given $k)) (ne (toString $x) "") }}{{ fail (printf "config.env.%s has no effect on %s, which has a value of its own: write %s.%s instead" $k $.name $.place $k) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Why functions and gateway do not verify who delivers, and what to do; empty where they do. */}}
{{- define "vitistack.unauthenticated" -}}
{{- $wanted := (.Values.authentication).oidc | default "auto" -}}
{{- $name := printf "%s/config-features" .Values.networkPolicy.eventingNamespace -}}
{{- $features := lookup "v1" "ConfigMap" .Values.networkPolicy.eventingNamespace "config-features" -}}
{{- $flag := get (default dict $features.data) "authentication-oidc" | default "disabled" | lower -}}
{{- $why := "" -}}
{{- if eq $wanted "disabled" -}}
  {{- $why = "authentication.oidc is disabled: set it to auto" -}}
{{- else if eq .Values.broker.class "NatsJetStreamBroker" -}}
  {{- $why = "the Broker on NATS JetStream sends no tokens: choose another broker.class, and see that networkPolicy.enabled is true and enforced" -}}
{{- else if and $features (ne $flag "enabled") -}}
  {{- $why = printf "authentication-oidc is %s in ConfigMap %s of Knative Eventing: set it to enabled, and upgrade this release" $flag $name -}}
{{- else if and (not $features) (eq $wanted "auto") -}}
  {{- $why = printf "Helm finds no ConfigMap %s: set authentication.oidc to enabled where Helm cannot ask the cluster and authentication-oidc is enabled there, or name the namespace of Knative Eventing in networkPolicy.eventingNamespace" $name -}}
{{- end -}}
{{- if and $why (eq $wanted "enabled") }}{{ fail (printf "authentication.oidc is enabled, and deliveries would all be refused: %s; or set authentication.oidc to auto" $why) }}{{ end -}}
{{- $why -}}
{{- end -}}

{{/* The Secrets that a function's environment comes from, as a list. */}}
{{- define "vitistack.secrets" -}}
{{- $v := .root.Values -}}
{{- $names := list (default .name (index $v.functions .name).existingSecret) -}}
{{- if eq .name "kea-reserve" }}{{ $names = append $names $v.kea.existingSecret }}{{ end -}}
{{- if eq .name "provision-network" }}{{ $names = concat $names (list $v.nam.existingSecret $v.netbox.existingSecret) }}{{ end -}}
{{- $list := list (dict "configMapRef" (dict "name" "vitistack-config" "optional" true)) -}}
{{- range ($names | uniq | compact) }}{{ $list = append $list (dict "secretRef" (dict "name" . "optional" true)) }}{{ end -}}
{{ dict "list" $list | toYaml }}
{{- end -}}

{{/* What the values make of a Knative Service of knative/, as YAML to merge over it. */}}
{{- define "vitistack.function" -}}
{{- $name := .object.metadata.name -}}
{{- $v := required (printf "values.yaml has no functions.%s" $name) (index .root.Values.functions $name) -}}
{{- $template := .object.spec.template -}}
{{- $c := index $template.spec.containers 0 -}}
{{- $_ := set $c "image" (include "vitistack.image" (dict "root" .root "name" $name)) -}}
{{- $_ = set $c "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- $_ = set $c "envFrom" (include "vitistack.secrets" (dict "root" .root "name" $name) | fromYaml).list -}}
{{- range $volume := $template.spec.volumes -}}
  {{- if eq $volume.name "credentials" -}}
    {{- $sources := list -}}
    {{- range $c.envFrom }}{{ with .secretRef }}{{ $sources = append $sources (dict "secret" .) }}{{ end }}{{ end -}}
    {{- $_ = set $volume.projected "sources" $sources -}}
  {{- end -}}
{{- end -}}
{{- $_ = set $c "env" (include "vitistack.env" (dict "root" .root "name" $name "own" $c.env) | fromYaml).list -}}
{{- with $v.resources }}{{ $_ = set $c "resources" . }}{{ end -}}
{{- $_ = set $template.metadata.annotations "autoscaling.knative.dev/min-scale" (toString $v.minScale) -}}
{{- with $v.maxScale }}{{ $_ = set $template.metadata.annotations "autoscaling.knative.dev/max-scale" (toString .) }}{{ end -}}
{{- $max := index $template.metadata.annotations "autoscaling.knative.dev/max-scale" | int -}}
{{- if and $max (gt (int $v.minScale) $max) }}{{ fail (printf "functions.%s.minScale is %d, above its maxScale of %d" $name (int $v.minScale) $max) }}{{ end -}}
{{- $_ = set $template.metadata.annotations "vitistack.io/config" (include (print .root.Template.BasePath "/config.yaml") .root | sha256sum | trunc 16) -}}
{{- include "vitistack.placement" (dict "root" .root "pod" $template.spec "place" .root.Values.functions.placement) -}}
{{- end -}}

{{- define "vitistack.placement" -}}
{{- $pod := .pod -}}
{{- $v := .root.Values -}}
{{- if .place -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}{{ with index $v $key }}{{ $_ := set $pod $key . }}{{ end }}{{ end -}}
{{- end -}}
{{- $secrets := list -}}
{{- range $v.image.pullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- with $secrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- end -}}

{{/* The settings of functions by which previews of the gateway decide, as a map: those that differ from what the gateway reads in vitistack-config. */}}
{{- define "vitistack.previewSettings" -}}
{{- $v := .Values -}}
{{- $settings := dict -}}
{{- range $name, $variables := dict "provision-network" (list "SEPARATE_DATACENTERS") "create-vm" (list "IMAGE_FACTORY" "ALLOWED_IMAGE_HOSTS") "bootstrap-talos" (list "TALOS_VERSION" "ALLOWED_ADDON_HOSTS") -}}
  {{- range (include "vitistack.env" (dict "root" $ "name" $name "own" list) | fromYaml).list -}}
    {{- if has .name $variables }}{{ $_ := set $settings .name .value }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $common := get ($v.config.env | default dict) "ALLOWED_ENDPOINTS" -}}
{{- $images := get ((index $v.functions "create-vm").env | default dict) "ALLOWED_ENDPOINTS" | default $common -}}
{{- $gateway := get ($v.gateway.env | default dict) "ALLOWED_ENDPOINTS" | default $common -}}
{{- if ne (toString $images) (toString $gateway) }}{{ $_ := set $settings "PREVIEW_ALLOWEDENDPOINTS" (toString $images) }}{{ end -}}
{{ toYaml $settings }}
{{- end -}}

{{/* What the values make of the gateway's Deployment. */}}
{{- define "vitistack.gateway" -}}
{{- $v := .root.Values -}}
{{- $pod := .object.spec.template.spec -}}
{{- $c := index $pod.containers 0 -}}
{{- $_ := set .object.spec "replicas" (int $v.replicaCount) -}}
{{- $_ = set $c "image" (include "vitistack.image" (dict "root" .root "name" "gateway")) -}}
{{- $_ = set $c "imagePullPolicy" $v.image.pullPolicy -}}
{{- $_ = set $c "resources" $v.resources -}}
{{- $env := dict -}}
{{- $mounts := $c.volumeMounts -}}
{{- $volumes := list -}}
{{- range $pod.volumes -}}
  {{- if and (eq .name "state") $v.persistence.enabled -}}
    {{- $volumes = append $volumes (dict "name" "state" "persistentVolumeClaim" (dict "claimName" (default "gateway" $v.persistence.existingClaim))) -}}
  {{- else }}{{ $volumes = append $volumes . }}{{ end -}}
{{- end -}}
{{- if $v.auth.enabled -}}
  {{- $env = merge $env (dict "AUTH_ENABLED" "true" "AUTH_KEYSFILE" (print "/etc/vitistack/auth/" $v.auth.key)) -}}
  {{- $volumes = append $volumes (dict "name" "auth" "secret" (dict "secretName" (required "auth.enabled needs auth.existingSecret: the name of a Secret with a file of API keys" $v.auth.existingSecret))) -}}
  {{- $mounts = append $mounts (dict "name" "auth" "mountPath" "/etc/vitistack/auth" "readOnly" true) -}}
{{- end -}}
{{- if $v.tls.enabled -}}
  {{- $env = merge $env (dict "TLS_ENABLED" "true" "TLS_CERTFILE" "/etc/vitistack/tls/tls.crt" "TLS_KEYFILE" "/etc/vitistack/tls/tls.key") -}}
  {{- if $v.tls.clientCertificates }}{{ $_ = set $env "TLS_CAFILE" "/etc/vitistack/tls/ca.crt" }}{{ end -}}
  {{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" (required "tls.enabled needs tls.existingSecret: the name of a Secret with tls.crt and tls.key" $v.tls.existingSecret))) -}}
  {{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/vitistack/tls" "readOnly" true) -}}
  {{- range list "startupProbe" "readinessProbe" "livenessProbe" }}{{ $_ = set (index $c .).httpGet "scheme" "HTTPS" }}{{ end -}}
{{- end -}}
{{- if ($v.nodeEvents).enabled }}{{ $_ = set $env "NODE_EVENTS_ADDRESS" ":9993" }}{{ end -}}
{{- $schedules := dict "HEARTBEAT_SCHEDULE" (($v.heartbeat).schedule | default "*/10 * * * * *") "RESYNC_SCHEDULE" $v.functions.resync.schedule -}}
{{- range $c.env }}{{ if hasKey $schedules .name }}{{ $_ := set . "value" (get $schedules .name) }}{{ end }}{{ end -}}
{{- $own := deepCopy $env -}}
{{- range $c.env }}{{ $_ = set $own .name "own" }}{{ end -}}
{{- include "vitistack.checkHidden" (dict "root" .root "own" $own "given" (default dict $v.gateway.env) "name" "the gateway" "place" "gateway.env") -}}
{{- $given := include "vitistack.previewSettings" .root | fromYaml -}}
{{- range $own := list $env (default dict $v.gateway.env) }}{{ range $k, $x := $own }}{{ $_ = set $given $k $x }}{{ end }}{{ end -}}
{{- $list := list -}}
{{- range $c.env }}{{ if not (hasKey $given .name) }}{{ $list = append $list . }}{{ end }}{{ end -}}
{{- range $k, $x := $given }}{{ $list = append $list (dict "name" $k "value" (include "vitistack.text" $x)) }}{{ end -}}
{{- range $name, $ref := dict "database" $v.database "redis" $v.redis -}}
  {{- $k := printf "%s_URL" (upper $name) -}}
  {{- range $place := list "gateway" "config" }}{{ if and $ref.existingSecret (hasKey (default dict (index $v $place).env) $k) }}{{ fail (printf "%s.existingSecret and %s.env.%s both give the gateway %s: remove one of them" $name $place $k $k) }}{{ end }}{{ end -}}
  {{- if $ref.existingSecret }}{{ $list = append $list (dict "name" $k "valueFrom" (dict "secretKeyRef" (dict "name" $ref.existingSecret "key" $ref.key))) }}{{ end -}}
{{- end -}}
{{- $_ = set $c "env" $list -}}
{{- $_ = set (index $c.envFrom 1).secretRef "name" $v.gateway.existingSecret -}}
{{- $_ = set $c "volumeMounts" $mounts -}}
{{- $_ = set $pod "volumes" $volumes -}}
{{- /* The API server's defaults, which it would keep beside Recreate and then refuse, were they not Helm's to take away. */ -}}
{{- $strategy := dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" "25%" "maxUnavailable" "25%") -}}
{{- if $v.persistence.enabled }}{{ $strategy = dict "type" "Recreate" }}{{ end -}}
{{- $_ = set .object.spec "strategy" $strategy -}}
{{- $_ = set .object.spec.template.metadata "annotations" (dict "vitistack.io/config" (include (print .root.Template.BasePath "/config.yaml") .root | sha256sum | trunc 16)) -}}
{{- with $v.topologySpreadConstraints }}{{ $_ = set $pod "topologySpreadConstraints" . }}{{ end -}}
{{- include "vitistack.placement" (dict "root" .root "pod" $pod "place" true) -}}
{{- end -}}

{{/* What the values make of a NetworkPolicy of knative/. */}}
{{- define "vitistack.networkPolicy" -}}
{{- $v := .root.Values -}}
{{- $o := .object -}}
{{- $name := $o.metadata.name -}}
{{- $backends := dict "gateway-backends" "gateway" "provision-network" "provision-network" "kea-reserve" "kea-reserve" "create-vm" "create-vm" "bootstrap-talos" "bootstrap-talos" "etcd-backup" "etcd-backup" -}}
{{- $eventing := dict "kubernetes.io/metadata.name" $v.networkPolicy.eventingNamespace -}}
{{- if hasKey $backends $name -}}
  {{- $_ := set $o.spec "egress" (include "vitistack.rules" (include "vitistack.egress" (dict "root" .root "name" (get $backends $name)) | fromYaml) | fromYaml).list -}}
{{- else if eq $name "everybody" -}}
  {{- $_ := set $o.spec "egress" (include "vitistack.rules" (include "vitistack.everybody" .root | fromYaml) | fromYaml).list -}}
{{- else if eq $name "functions" -}}
  {{- $_ := set (index (index (index $o.spec.ingress 0).from 0).namespaceSelector.matchExpressions 0) "values" $v.networkPolicy.ingressNamespaces -}}
{{- else if eq $name "gateway" -}}
  {{- $_ := set (index (index $o.spec.ingress 1).from 0).namespaceSelector "matchLabels" $eventing -}}
{{- else if eq $name "gateway-node-events" -}}
  {{- $peers := (include "vitistack.peers" $v.networkPolicy.nodes | fromYaml).list -}}
  {{- /* A rule without peers would admit all peers. */ -}}
  {{- if $peers }}{{ $_ := set (index $o.spec.ingress 0) "from" $peers }}{{ else }}{{ $_ := set $o.spec "ingress" list }}{{ end -}}
{{- else if eq $name "broker-dispatchers" -}}
  {{- $_ := set (index (index (index $o.spec.egress 0).to 0).namespaceSelector.matchExpressions 0) "values" $v.networkPolicy.ingressNamespaces -}}
{{- else if eq $name "broker-nats" -}}
  {{- $_ := set (index (index $o.spec.egress 0).to 0).namespaceSelector.matchLabels "kubernetes.io/metadata.name" $v.broker.nats.namespace -}}
{{- end -}}
{{- end -}}

{{/* The functions that have rights on Secrets in all namespaces unless secrets.namespaces lists some. */}}
{{- define "vitistack.secretReaders" -}}
list: [create-vm, bootstrap-talos, etcd-backup]
{{- end -}}

{{/* The rules for Secrets and ConfigMaps of a function's ClusterRole in knative/: (dict "root" $ "name" "create-vm"). */}}
{{- define "vitistack.secretRules" -}}
{{- $rules := list -}}
{{- range $text := splitList "\n---\n" (.root.Files.Get (printf "knative/%s.yaml" .name)) -}}
  {{- $object := fromYaml $text -}}
  {{- if eq $object.kind "ClusterRole" -}}
    {{- range $object.rules }}{{ if or (has "secrets" .resources) (has "configmaps" .resources) }}{{ $rules = append $rules . }}{{ end }}{{ end -}}
  {{- end -}}
{{- end -}}
{{ toYaml (required (printf "knative/%s.yaml has no rule for Secrets" .name) $rules) }}
{{- end -}}

{{/* Sets the delivery of a Broker or Trigger: its own, that of the class, and that of the values: (dict "root" $ "object" $object "folder" "kafka"). A Trigger whose values differ from those of the Broker in knative/ keeps them. */}}
{{- define "vitistack.delivery" -}}
{{- $broker := (splitList "\n---\n" (.root.Files.Get "knative/broker.yaml") | first | fromYaml).spec.delivery -}}
{{- if eq (omit .object.spec.delivery "deadLetterSink" | toJson) (omit $broker "deadLetterSink" | toJson) -}}
{{- $class := dict -}}
{{- if .folder }}{{ $class = .root.Files.Get (printf "knative/variants/%s/broker.yaml" .folder) | fromYaml | dig "spec" "delivery" (dict) }}{{ end -}}
{{- range list $class (default dict .root.Values.broker.delivery) }}{{ range $k, $x := . }}{{ $_ := set $.object.spec.delivery $k $x }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The Brokers that exist: the folder of knative/variants by class, empty for the one of knative/broker.yaml. */}}
{{- define "vitistack.brokers" -}}
{MTChannelBasedBroker: "", Kafka: kafka, NatsJetStreamBroker: nats}
{{- end -}}

{{/* Refuses a class that does not exist or ignores spec.filters of Triggers, and an EventPolicy that the class would ignore. */}}
{{- define "vitistack.checkBroker" -}}
{{- $classes := include "vitistack.brokers" . | fromYaml -}}
{{- $write := printf "write one of %s" (keys $classes | sortAlpha | join ", ") -}}
{{- if eq .Values.broker.class "RabbitMQBroker" }}{{ fail (printf "broker.class RabbitMQBroker ignores spec.filters of Triggers, so that every function would receive every event: %s" $write) }}{{ end -}}
{{- if not (hasKey $classes .Values.broker.class) }}{{ fail (printf "broker.class %q does not exist: %s" .Values.broker.class $write) }}{{ end -}}
{{- if and .Values.eventPolicy.enabled (eq .Values.broker.class "NatsJetStreamBroker") }}{{ fail (printf "eventPolicy.enabled has no effect with broker.class %s, which ignores an EventPolicy: set it to false, or choose another broker.class" .Values.broker.class) }}{{ end -}}
{{- end -}}

{{/* What the values make of an object of knative/. */}}
{{- define "vitistack.adapt" -}}
{{- $v := .root.Values -}}
{{- $o := .object -}}
{{- $folder := get (include "vitistack.brokers" .root | fromYaml) $v.broker.class -}}
{{- $_ := set $o.metadata "labels" (merge (include "vitistack.labels" .root | fromYaml) (default dict $o.metadata.labels)) -}}
{{- if and (eq $o.kind "Service") (hasPrefix "serving" $o.apiVersion) -}}
  {{- include "vitistack.function" . -}}
{{- else if eq $o.kind "Deployment" -}}
  {{- include "vitistack.gateway" . -}}
{{- else if and (eq $o.kind "Service") (eq $o.metadata.name "gateway") -}}
  {{- $_ = set $o.spec "type" $v.service.type -}}
  {{- $_ = set (index $o.spec.ports 0) "port" (int $v.service.port) -}}
  {{- with $v.service.annotations }}{{ $_ = set $o.metadata "annotations" . }}{{ end -}}
{{- else if and (eq $o.kind "Service") (eq $o.metadata.name "gateway-node-events") -}}
  {{- $_ = set $o.spec "type" $v.nodeEvents.service.type -}}
  {{- $port := index $o.spec.ports 0 -}}
  {{- $_ = set $port "port" (int $v.nodeEvents.service.port) -}}
  {{- with $v.nodeEvents.service.nodePort }}{{ $_ = set $port "nodePort" (int .) }}{{ end -}}
  {{- with $v.nodeEvents.service.annotations }}{{ $_ = set $o.metadata "annotations" . }}{{ end -}}
{{- else if and (eq $o.kind "ClusterRole") (eq $o.metadata.name "vitistack-edit") (eq (default "required" $v.networkPools) "optional") -}}
  {{- /* A namespace that no NetworkPool binds would choose any network. */ -}}
  {{- $rules := list -}}
  {{- range $o.rules }}{{ if not (has "networknamespaces" .resources) }}{{ $rules = append $rules . }}{{ end }}{{ end -}}
  {{- $_ = set $o "rules" $rules -}}
{{- else if and (eq $o.kind "ClusterRole") $v.secrets.namespaces (has (trimPrefix "vitistack-" $o.metadata.name) (include "vitistack.secretReaders" .root | fromYaml).list) -}}
  {{- $rules := list -}}
  {{- range $o.rules }}{{ if not (or (has "secrets" .resources) (has "configmaps" .resources)) }}{{ $rules = append $rules . }}{{ end }}{{ end -}}
  {{- $_ = set $o "rules" $rules -}}
{{- else if eq $o.kind "PingSource" -}}
  {{- $_ = set $o.spec "schedule" (ternary (($v.heartbeat).schedule | default $o.spec.schedule) $v.functions.resync.schedule (eq $o.metadata.name "heartbeat")) -}}
{{- else if eq $o.kind "Broker" -}}
  {{- include "vitistack.delivery" (dict "root" .root "object" $o "folder" $folder) -}}
  {{- $delivery := deepCopy $o.spec.delivery -}}
  {{- if $folder }}{{ $_ = mustMergeOverwrite $o (.root.Files.Get (printf "knative/variants/%s/broker.yaml" $folder) | replace "vitistack-system" .root.Release.Namespace | fromYaml) }}{{ end -}}
  {{- if eq $folder "kafka" }}{{ $_ = set $o.spec.config "name" $v.broker.kafka.configMap }}{{ $_ = set $o.spec.config "namespace" $v.broker.kafka.namespace }}{{ end -}}
  {{- if eq $folder "nats" }}
    {{- $key := "natsjetstream.eventing.knative.dev/config" -}}
    {{- $config := index $o.metadata.annotations $key | fromJson -}}
    {{- $_ = set $config.stream "replicas" (int $v.broker.nats.replicas) -}}
    {{- $_ = set $config.stream "maxAge" $v.broker.nats.maxAge -}}
    {{- $_ = set $o.metadata.annotations $key (toJson $config) -}}
  {{- end -}}
  {{- $_ = set $o.spec "delivery" $delivery -}}
{{- else if eq $o.kind "ApiServerSource" -}}
  {{- $_ = set $o.spec "namespaceSelector" (default dict $v.eventSource.namespaceSelector) -}}
  {{- if eq (toString $v.eventSource.kubevirt) "false" -}}
    {{- $resources := list -}}
    {{- range $o.spec.resources }}{{ if not (hasPrefix "kubevirt.io/" .apiVersion) }}{{ $resources = append $resources . }}{{ end }}{{ end -}}
    {{- $_ = set $o.spec "resources" $resources -}}
  {{- end -}}
{{- else if eq $o.kind "Trigger" -}}
  {{- include "vitistack.delivery" (dict "root" .root "object" $o "folder" $folder) -}}
{{- else if eq $o.kind "NetworkPolicy" -}}
  {{- include "vitistack.networkPolicy" . -}}
{{- end -}}
{{- with index (default dict $v.overrides) (printf "%s/%s" $o.kind $o.metadata.name) }}{{ $_ = mustMergeOverwrite $o . }}{{ end -}}
{{- end -}}
