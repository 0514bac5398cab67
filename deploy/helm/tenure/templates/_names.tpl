{{- define "tenure.name" -}}
{{- .Values.nameOverride | default .Values.name | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tenure.namespace" -}}
{{- (.Values.global | default dict).namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "tenure.labels" -}}
app.kubernetes.io/name: tenure
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tenure.metadata" -}}
name: {{ .name }}
namespace: {{ include "tenure.namespace" .root }}
labels:
  {{- include "tenure.labels" .root | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "tenure.image" -}}
{{- $image := .Values.image | default dict -}}
{{- $image.name | default $image.repository }}:{{ $image.version | default $image.tag | default .Chart.AppVersion -}}
{{- end -}}

{{- define "tenure.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.global | default dict).serviceAccountName | default (include "tenure.name" .) -}}
{{- end -}}

{{- define "tenure.secret" -}}
{{- $redis := mergeOverwrite (deepCopy .Values.redis) (.Values.database | default dict) -}}
{{- if not .Values.developer -}}
{{- $redis.existingSecret | default (ternary (printf "%s-redis" (include "tenure.name" .)) "" (not (empty $redis.password))) -}}
{{- end -}}
{{- end -}}

{{- define "tenure.secretKey" -}}
{{- ternary .Values.redis.existingSecretKey "redis-password" (not (empty .Values.redis.existingSecret)) -}}
{{- end -}}

{{- define "tenure.redisUrl" -}}
{{- $redis := mergeOverwrite (deepCopy .Values.redis) (omit (.Values.database | default dict) "password") -}}
{{- if .Values.developer -}}
embedded
{{- else if $redis.url -}}
{{ $redis.url }}
{{- else -}}
{{ ternary "rediss" "redis" $redis.tls }}://{{ $redis.host }}:{{ int $redis.port }}/{{ int $redis.db }}
{{- end -}}
{{- end -}}

{{/* Whether a role is wanted: a section with enabled, or Cloudforet's flat true or false. */}}
{{- define "tenure.isOn" -}}
{{- $value := index .root.Values .role -}}
{{- if kindIs "bool" $value }}{{ ternary "yes" "" $value }}{{ else if $value.enabled }}yes{{ end -}}
{{- end -}}

{{/* The roles to deploy, as JSON. Several flat flags of Cloudforet's mean replicas of several kinds. */}}
{{- define "tenure.roles" -}}
{{- $roles := list -}}
{{- if and .Values.enabled (or .Values.developer (eq .Values.mode "allInOne")) -}}
{{- $roles = list "allInOne" -}}
{{- else if .Values.enabled -}}
{{- range $role := list "scheduler" "worker" "api" -}}
{{- if include "tenure.isOn" (dict "root" $ "role" $role) }}{{ $roles = append $roles $role }}{{ end -}}
{{- end -}}
{{- end -}}
{{- dict "roles" $roles | toJson -}}
{{- end -}}

{{- define "tenure.replicas" -}}
{{- $section := index .root.Values .role -}}
{{- if .root.Values.developer -}}
1
{{- else if eq .role "allInOne" -}}
{{ int .root.Values.replicas }}
{{- else if and (eq .role "worker") .root.Values.replicas_worker -}}
{{ int .root.Values.replicas_worker }}
{{- else if kindIs "bool" $section -}}
2
{{- else -}}
{{ int $section.replicas }}
{{- end -}}
{{- end -}}

{{- define "tenure.roleName" -}}
{{ include "tenure.name" .root }}{{ if ne .role "allInOne" }}-{{ .role }}{{ end }}
{{- end -}}
