{{/* What every replica needs beside what its owner wrote. */}}
{{- define "tenure.ownConfig" -}}
{{- $root := .root -}}
{{- $redis := dict -}}
{{/* Files of Cloudforet say where Redis is, unless these values do. */}}
{{- if or (not $root.Values.compat) $root.Values.developer $root.Values.redis.url -}}
{{- $_ := set $redis "url" (include "tenure.redisUrl" $root) -}}
{{- end -}}
{{- if include "tenure.secret" $root -}}
{{- $_ := set $redis "password" (printf "${file:/run/secrets/tenure/%s}" (include "tenure.secretKey" $root)) -}}
{{- end -}}
{{- $log := dict "format" "json" -}}
{{- if $root.Values.developer }}{{ $_ := set $log "level" "debug" }}{{ end -}}
{{- $web := dict "host" "0.0.0.0" "port" 8080 "health_port" 8081 -}}
{{- if $root.Values.http.tokensSecret }}{{ $_ := set $web "tokens_file" "/run/secrets/tenure-http/tokens" }}{{ end -}}
{{- if $root.Values.developer }}{{ $_ := set $web "reads" "open" }}{{ end -}}
{{- with $root.Values.http.allowedHosts }}{{ $_ := set $web "allowed_hosts" . }}{{ end -}}
{{- with $root.Values.ingress.host }}{{ $_ := set $web "allowed_hosts" (append ($web.allowed_hosts | default list) .) }}{{ end -}}
{{- $cluster := $root.Values.cluster | default $root.Release.Name -}}
{{- dict "version" 1 "cluster" $cluster "redis" $redis "web" $web "log" $log | toYaml -}}
{{- end -}}

{{/* The sections that a role reads, as JSON. In Cloudforet's format the scheduler's names the packages whose code the
     workers execute, which do not participate; and both say where Redis is. */}}
{{- define "tenure.sections" -}}
{{- $compat := .root.Values.compat -}}
{{- $found := list -}}
{{- if or (has .role (list "allInOne" "scheduler")) $compat }}{{ $found = append $found "application_scheduler" }}{{ end -}}
{{- if or (has .role (list "allInOne" "worker")) (and $compat (eq .role "api")) }}{{ $found = append $found "application_worker" }}{{ end -}}
{{- if eq .role "api" }}{{ $found = append $found "application_rest" }}{{ end -}}
{{- dict "list" $found | toJson -}}
{{- end -}}

{{/* The files of a role by name, as JSON: layers of one configuration, of which those of Cloudforet are as they were given. */}}
{{- define "tenure.files" -}}
{{- $values := .root.Values -}}
{{- $global := $values.global | default dict -}}
{{- $shared := $global.shared_conf | default $global.shared | default dict -}}
{{- $own := include "tenure.ownConfig" . | fromYaml -}}
{{- $files := dict "00-tenure.yaml" (mergeOverwrite $own (deepCopy ($values.config | default dict)) | toYaml) -}}
{{- if $shared }}{{ $_ := set $files "20-shared.yaml" (toYaml $shared) }}{{ end -}}
{{- if and $values.compat $values.application }}{{ $_ := set $files "25-application.yaml" (toYaml $values.application) }}{{ end -}}
{{- range $section := get (include "tenure.sections" . | fromJson) "list" -}}
{{- $order := ternary "40" "30" (eq $section "application_rest") -}}
{{- with index $values $section }}{{ $_ := set $files (printf "%s-%s.yaml" $order ($section | replace "_" "-")) (toYaml .) }}{{ end -}}
{{- end -}}
{{- if and $values.compat (eq (len $files) 1) }}{{ fail "compat: cloudforet needs application_scheduler or application_worker" }}{{ end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Where commands find the configuration, those that a person executes in the pod too. */}}
{{- define "tenure.whereConfig" -}}
{{- $files := list "/etc/tenure" -}}
{{- if .root.Values.compat -}}
{{- $files = list -}}
{{- range $name, $_ := include "tenure.files" . | fromJson }}{{ $files = append $files (printf "/etc/tenure/%s" $name) }}{{ end -}}
{{- end -}}
{{- join ":" $files -}}
{{- end -}}

{{/* Environment of a role, as a list. */}}
{{- define "tenure.env" -}}
{{- $root := .root -}}
- name: TENURE_REPLICA
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: TENURE_CONFIG, value: {{ include "tenure.whereConfig" . | quote }}}
# A directory of its own in the volume, which Kubernetes makes writable for everybody.
- {name: TENURE_DATA_DIR, value: /var/lib/tenure/data}
{{- with $root.Values.compat }}
- {name: TENURE_COMPAT, value: {{ . | quote }}}
{{- end }}
- {name: TENURE_SUPERVISION__GRACE, value: {{ printf "%ds" (int (include "tenure.drain" $root)) | quote }}}
# As terminationGracePeriodSeconds: a grace that does not fit is refused at the start.
- {name: TENURE_SUPERVISION__STOP_TIMEOUT, value: {{ printf "%ds" (add (int (include "tenure.drain" $root)) 10) | quote }}}
{{- if has .role (list "worker" "api") }}
- {name: TENURE_ELECTION__PARTICIPATE, value: "false"}
{{- end }}
{{- if or (eq .role "api") (and (eq .role "scheduler") (not $root.Values.compat)) }}
- {name: TENURE_WORKERS, value: "{}"}
{{- end }}
{{- with (($root.Values.global | default dict).common_env) }}
{{ toYaml . }}
{{- end }}
{{- with $root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tenure.drain" -}}
{{ int (.Values.gracePeriod | default .Values.drainTimeout) }}
{{- end -}}
