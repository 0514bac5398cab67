{{/* Lists of a name that is a list in our values and may be an empty mapping in Cloudforet's. */}}
{{- define "tenure.list" -}}
{{- dict "list" (ternary . list (kindIs "slice" .)) | toJson -}}
{{- end -}}

{{- define "tenure.containers" -}}
{{- $values := .root.Values -}}
{{- $backend := ($values.global | default dict).backend | default dict -}}
{{- $role := index $values .role | default dict -}}
{{- $own := list -}}
{{- if kindIs "map" $role }}{{ $own = $role.extraContainers | default list }}{{ end -}}
{{- $theirs := list -}}
{{- if $values.sidecar }}{{ $theirs = get (include "tenure.list" (index $values.sidecar .role) | fromJson) "list" }}{{ end -}}
{{- $all := concat ($values.extraContainers | default list) $own $theirs -}}
{{- dict "list" (concat $all (get (include "tenure.list" $backend.sidecar | fromJson) "list")) | toJson -}}
{{- end -}}

{{/* Volumes of the owner. What Cloudforet's charts mount from the host is left out: its only use there is the time zone. */}}
{{- define "tenure.volumes" -}}
{{- $values := .Values -}}
{{- $backend := ($values.global | default dict).backend | default dict -}}
{{- $found := list -}}
{{- range $values.extraVolumes -}}
{{- if .hostPath }}{{ fail (printf "extraVolumes: %s is a hostPath; use an emptyDir, a claim, a ConfigMap or a Secret" .name) }}{{ end -}}
{{- $found = append $found . -}}
{{- end -}}
{{- range concat ($values.volumes | default list) (get (include "tenure.list" $backend.volumes | fromJson) "list") -}}
{{- if not .hostPath }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- dict "list" $found | toJson -}}
{{- end -}}

{{/* Mounts of the owner, and those beside the sections that a role reads: a section may name a file of them. Its own section's come first
     where two have one place. */}}
{{- define "tenure.mounts" -}}
{{- $values := .root.Values -}}
{{- $theirs := $values.volumeMounts | default dict -}}
{{- $mounts := $values.extraVolumeMounts | default list -}}
{{- $paths := dict -}}
{{- range $mounts }}{{ $_ := set $paths .mountPath true }}{{ end -}}
{{- range reverse (append (get (include "tenure.sections" . | fromJson) "list") (printf "application_%s" .role)) -}}
{{- range get (include "tenure.list" (index $theirs .) | fromJson) "list" -}}
{{- if not (hasKey $paths .mountPath) }}{{ $mounts = append $mounts . }}{{ $_ := set $paths .mountPath true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- dict "list" $mounts | toJson -}}
{{- end -}}

{{- define "tenure.probe" -}}
httpGet: {path: {{ . }}, port: health}
timeoutSeconds: 3
{{- end -}}

{{- define "tenure.podSpec" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $drain := int (include "tenure.drain" $root) -}}
serviceAccountName: {{ include "tenure.serviceAccount" $root }}
# Tenure asks Kubernetes for nothing: its election is a lease in Redis.
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add $drain 10 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if and $values.topologySpread.enabled (not $values.developer) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ $values.topologySpread.whenUnsatisfiable }}
    nodeTaintsPolicy: Honor
    labelSelector:
      matchLabels:
        {{- include "tenure.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
{{- end }}
{{- with $values.initContainers }}
initContainers: {{ toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: tenure
    image: {{ include "tenure.image" $root | quote }}
    imagePullPolicy: {{ $values.imagePullPolicy }}
    args: [run]
    env: {{ include "tenure.env" . | nindent 6 }}
    ports:
      - {name: http, containerPort: 8080}
      # For probes alone: what others hold of the port above leaves it alone.
      - {name: health, containerPort: 8081}
    # Liveness never asks Redis: an outage of Redis must not restart every replica.
    livenessProbe: {{ include "tenure.probe" "/livez" | nindent 6 }}
      periodSeconds: 10
      failureThreshold: 3
    readinessProbe: {{ include "tenure.probe" "/readyz" | nindent 6 }}
      periodSeconds: 5
    startupProbe: {{ include "tenure.probe" "/livez" | nindent 6 }}
      periodSeconds: 1
      failureThreshold: 60
    resources: {{ toYaml (index ($values.resources | default dict) .role | default dict) | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      # The whole directory: files that are mounted one by one never follow a change.
      - {name: config, mountPath: /etc/tenure, readOnly: true}
      - {name: data, mountPath: /var/lib/tenure}
      - {name: tmp, mountPath: /tmp}
      {{- if include "tenure.secret" $root }}
      - {name: secrets, mountPath: /run/secrets/tenure, readOnly: true}
      {{- end }}
      {{- if $values.http.tokensSecret }}
      - {name: http-tokens, mountPath: /run/secrets/tenure-http, readOnly: true}
      {{- end }}
      {{- with get (include "tenure.mounts" . | fromJson) "list" }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with get (include "tenure.containers" . | fromJson) "list" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "tenure.roleName" . }}-config}
  # A job that writes without end is evicted, and does not fill the node.
  - name: data
    emptyDir: {sizeLimit: 2Gi}
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
  {{- with include "tenure.secret" $root }}
  - name: secrets
    secret: {secretName: {{ . }}}
  {{- end }}
  {{- with $values.http.tokensSecret }}
  - name: http-tokens
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- with get (include "tenure.volumes" $root | fromJson) "list" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
