{{/* What finds the pods of this release. */}}
{{- define "bearward.selector" -}}
app.kubernetes.io/name: bearward
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bearward.labels" -}}
{{ include "bearward.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The text of gateway.toml. Without the two ports, no pod would become ready. */}}
{{- define "bearward.config" -}}
{{- $config := .Values.config | required "config is empty: --set-file config=gateway.toml" }}
{{- range list "8443" "9443" }}
{{- if not (regexMatch (printf "(?m)^[^#]*['\"](0\\.0\\.0\\.0|\\[::\\]):%s['\"]" .) $config) }}
{{- fail (printf "config: no address \"0.0.0.0:%s\": the listener is at port 8443, and [admin] at port 9443" .) }}
{{- end }}
{{- end }}
{{- $config }}
{{- end }}
