{{/* Where the chart does not know an address: the private networks, so never the internet. The defaults of values.yaml are the same. */}}
{{- define "vitistack.privateNetworks" -}}
list: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, "fc00::/7"]
{{- end -}}

{{/* The rules of egress of a function or of the gateway, as a list: (dict "root" $ "name" "create-vm"). A rule whose addresses come from a value has that value's name in "value". */}}
{{- define "vitistack.egress" -}}
{{- $root := .root -}}
{{- $v := .root.Values -}}
{{- $env := dict -}}
{{- if eq .name "gateway" }}{{ $env = merge (dict) (default dict $v.gateway.env) -}}
{{- else }}{{ range (include "vitistack.env" (dict "root" $root "name" .name "own" list) | fromYaml).list }}{{ $_ := set $env .name .value }}{{ end }}{{ end -}}
{{- $env = merge $env (default dict $v.config.env) -}}
{{- $rules := list -}}
{{- range (include "vitistack.backends" . | fromYaml).list -}}
  {{- $urls := list -}}
  {{- range .env }}{{ $urls = concat $urls (include "vitistack.urls" (index $env . | default "") | fromYaml).list }}{{ end -}}
  {{- $value := index $v.networkPolicy .value -}}
  {{- $peers := (include "vitistack.peers" $value | fromYaml).list -}}
  {{- $port := get $env (default "" .portVariable) | default .port -}}
  {{- range $urls | uniq -}}
    {{- $rules = append $rules (include "vitistack.ruleOfURL" (dict "root" $root "url" . "value" $value "peers" $peers "port" $port) | fromYaml) -}}
  {{- end -}}
  {{- $ports := default .ports $value.ports -}}
  {{- if and (not $urls) (or .always .secret $value.ports) }}{{ $rules = append $rules (dict "to" $peers "ports" $ports "known" false) }}{{ end -}}
  {{- $name := .value -}}
  {{- range $rules }}{{ if not .value }}{{ $_ := set . "value" $name }}{{ end }}{{ end -}}
{{- end -}}
{{- $list := list -}}
{{- range $rules }}{{ if .to }}{{ $list = append $list . }}{{ end }}{{ end -}}
{{ dict "list" $list | toYaml }}
{{- end -}}

{{/* The backends of a function or of the gateway, as a list: the value of networkPolicy with their addresses, the variables with their URLs, the port of URLs without one if it is not that of the scheme, and the ports of backends whose URL the chart cannot read, because it is in a Secret or, with always, in objects. */}}
{{- define "vitistack.backends" -}}
{{- $v := .root.Values -}}
{{- $gateway := default dict $v.gateway.env -}}
list:
{{- if eq .name "kea-reserve" }}
  - {value: kea, env: [KEA_URL, KEA_BASE_URL, KEA_HOST, KEA_SECONDARY_URL], port: 8000, portVariable: KEA_PORT}
{{- else if eq .name "provision-network" }}
  - {value: nam, env: [NAM_URL]}
  - {value: netbox, env: [NETBOX_URL]}
{{- else if eq .name "create-vm" }}
  - {value: proxmox, always: true}
  - {value: kubevirt, always: true}
{{- else if eq .name "bootstrap-talos" }}
  - {value: nodes, always: true}
  - {value: clusters, always: true}
  - {value: addons, secret: {{ join "," $v.addons.allowedHosts | quote }}, ports: [443]}
{{- else if eq .name "etcd-backup" }}
  - {value: nodes, always: true}
  - {value: objectStores, always: true}
{{- else if eq .name "gateway" }}
  - {value: nodes, always: true}
  - {value: clusters, always: true}
  - {value: database, env: [DATABASE_URL], secret: {{ $v.database.existingSecret | quote }}, ports: [5432, 3306]}
  - {value: redis, env: [REDIS_URL], secret: {{ or $v.redis.existingSecret (get $gateway "CACHE_REDIS_HOST") | quote }}, ports: [{{ get $gateway "CACHE_REDIS_PORT" | default 6379 | int }}]}
  - {value: webhooks, env: [HANDLERS_WEBHOOK_ENDPOINTS], secret: {{ get $gateway "HANDLERS_WEBHOOK_ENABLED" | toString | eq "true" }}, ports: [443]}
  - {value: operators, env: [PROXMOX_OPERATOR_ENDPOINT, TALOS_OPERATOR_ENDPOINT, KEA_OPERATOR_ENDPOINT, KUBEVIRT_OPERATOR_ENDPOINT]}
{{- end }}
  - {value: proxy, env: [HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, http_proxy, https_proxy, all_proxy]}
{{- end -}}

{{/* The URLs in a text, as a list. A proxy may be without a scheme. */}}
{{- define "vitistack.urls" -}}
{{- $text := toString . -}}
{{- $urls := regexFindAll `[a-z0-9+]+://[^\s",]+` $text -1 -}}
{{- if and $text (not $urls) (not (contains "{" $text)) (not (hasPrefix "[" $text)) }}{{ $urls = list (print "http://" $text) }}{{ end -}}
{{- $list := list -}}
{{- range $urls }}{{ if not (hasPrefix "sqlite:" .) }}{{ $list = append $list . }}{{ end }}{{ end -}}
{{ dict "list" $list | toYaml }}
{{- end -}}

{{/* The peers that a value of networkPolicy lists. */}}
{{- define "vitistack.peers" -}}
{{- $list := list -}}
{{- range .cidrs }}{{ $list = append $list (dict "ipBlock" (dict "cidr" .)) }}{{ end -}}
{{- with .namespaces }}{{ $list = append $list (dict "namespaceSelector" (dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" .)))) }}{{ end -}}
{{ dict "list" $list | toYaml }}
{{- end -}}

{{/* The rule for a URL. An address is known, and so is a Service, whose pods may have another port; a name leads to the peers that the value lists. */}}
{{- define "vitistack.ruleOfURL" -}}
{{- $url := urlParse .url -}}
{{- $host := $url.hostname -}}
{{- $schemes := dict "http" 80 "https" 443 "socks5" 1080 "socks5h" 1080 "postgres" 5432 "postgresql" 5432 "mysql" 3306 "redis" 6379 "rediss" 6379 -}}
{{- $port := regexFind `:[0-9]+$` $url.host | trimPrefix ":" | default .port | default (get $schemes $url.scheme) -}}
{{- $port = int $port -}}
{{- $to := .peers -}}
{{- $known := true -}}
{{- $labels := splitList "." $host -}}
{{- if contains ":" $host }}{{ $to = list (dict "ipBlock" (dict "cidr" (print $host "/128"))) -}}
{{- else if regexMatch `^[0-9.]+$` $host }}{{ $to = list (dict "ipBlock" (dict "cidr" (print $host "/32"))) -}}
{{- else if or (eq (len $labels) 1) (and (gt (len $labels) 2) (eq (index $labels 2) "svc")) -}}
  {{- $namespace := ternary .root.Release.Namespace (index (append $labels "") 1) (eq (len $labels) 1) -}}
  {{- $to = list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" $namespace))) -}}
  {{- range (lookup "v1" "Service" $namespace (first $labels) | default (dict "spec" dict)).spec.ports }}{{ if eq (int .port) (int $port) }}{{ $port = .targetPort }}{{ end }}{{ end -}}
{{- else }}{{ $known = false }}{{ end -}}
{{ dict "to" $to "ports" (default (list $port) .value.ports) "known" $known | toYaml }}
{{- end -}}

{{/* Where the Kubernetes API is: what the values say, or the cluster, or else private networks. */}}
{{- define "vitistack.apiServer" -}}
{{- $v := .Values.networkPolicy.apiServer -}}
{{- $cidrs := list -}}
{{- $ports := list -}}
{{- if not (and $v.cidrs $v.ports) -}}
  {{- with lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes" -}}
    {{- range .endpoints }}{{ range .addresses }}{{ $cidrs = append $cidrs (print . (ternary "/128" "/32" (contains ":" .))) }}{{ end }}{{ end -}}
    {{- range .ports }}{{ $ports = append $ports .port }}{{ end -}}
  {{- end -}}
  {{- /* Some plug-ins judge a connection before the Service's address is replaced. */ -}}
  {{- with and $cidrs (lookup "v1" "Service" "default" "kubernetes") -}}
    {{- range .spec.clusterIPs }}{{ $cidrs = append $cidrs (print . (ternary "/128" "/32" (contains ":" .))) }}{{ end -}}
    {{- range .spec.ports }}{{ $ports = append $ports .port }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $source := ternary "values" (ternary "cluster" "none" (not (empty $cidrs))) (not (empty $v.cidrs)) -}}
{{- $private := (include "vitistack.privateNetworks" . | fromYaml).list -}}
{{ dict "cidrs" (coalesce $v.cidrs $cidrs $private) "ports" (coalesce $v.ports ($ports | uniq) (list 443 6443)) "source" $source | toYaml }}
{{- end -}}

{{/* What every pod may reach: names, the Kubernetes API, the Broker, the gateway. */}}
{{- define "vitistack.everybody" -}}
{{- $v := .Values.networkPolicy -}}
{{- $api := include "vitistack.apiServer" . | fromYaml -}}
{{- $namespace := dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" $v.eventingNamespace)) -}}
{{- $gateway := dict "podSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" "gateway")) -}}
{{- $names := dict "to" (include "vitistack.peers" $v.dns | fromYaml).list "ports" $v.dns.ports "protocols" (list "UDP" "TCP") -}}
{{- $kubernetes := dict "to" (include "vitistack.peers" $api | fromYaml).list "ports" $api.ports -}}
{{ dict "list" (list $names $kubernetes (dict "to" (list $namespace) "ports" (list 8080 8443)) (dict "to" (list $gateway) "ports" (list 9991 9992))) | toYaml }}
{{- end -}}

{{/* Rules of egress as a NetworkPolicy has them, of those above. One without peers would let everything out. */}}
{{- define "vitistack.rules" -}}
{{- $list := list -}}
{{- range .list -}}
  {{- $rule := . -}}
  {{- $ports := list -}}
  {{- range $port := .ports }}{{ range default (list "TCP") $rule.protocols }}{{ $ports = append $ports (dict "protocol" . "port" $port) }}{{ end }}{{ end -}}
  {{- if and .to $ports }}{{ $list = append $list (dict "to" .to "ports" $ports) }}{{ end -}}
{{- end -}}
{{ dict "list" ($list | uniq) | toYaml }}
{{- end -}}
