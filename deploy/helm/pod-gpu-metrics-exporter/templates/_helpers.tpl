{{- define "exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "exporter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "exporter.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "exporter.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What a selector can hold on to for good. */}}
{{- define "exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "exporter.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "exporter.labels" -}}
{{ include "exporter.selectorLabels" . }}
{{ include "exporter.ownLabels" . }}
{{- end -}}

{{/* By digest, these bytes and no others; a tag may come to name another image. */}}
{{- define "exporter.image" -}}
{{- with .Values.image -}}
{{- if and .digest .tag -}}
{{- fail "image.tag has no effect beside image.digest: for another image set image.digest to \"\"" -}}
{{- end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The name of the service account, or nothing: the namespace's own, without a token. */}}
{{- define "exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if include "exporter.makesServiceAccount" . -}}
{{- include "exporter.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* Whether the exporter has a token and rights in the Kubernetes API. */}}
{{- define "exporter.asksKubernetes" -}}
{{- if or .Values.rbac.create .Values.allocators -}}true{{- end -}}
{{- end -}}

{{- define "exporter.makesServiceAccount" -}}
{{- if or .Values.serviceAccount.create (and (include "exporter.asksKubernetes" .) (not .Values.serviceAccount.name)) -}}true{{- end -}}
{{- end -}}

{{/* Whether the chart writes web.yaml itself. */}}
{{- define "exporter.makesWebConfig" -}}
{{- if and (not .Values.webConfig.existingSecret) (or .Values.tlsServerConfig.enabled .Values.basicAuth.users) -}}true{{- end -}}
{{- end -}}

{{- define "exporter.hasWebConfig" -}}
{{- if or .Values.webConfig.existingSecret (include "exporter.makesWebConfig" .) -}}true{{- end -}}
{{- end -}}

{{- define "exporter.speaksTls" -}}
{{- if .Values.webConfig.existingSecret -}}
{{- if .Values.webConfig.tls -}}true{{- end -}}
{{- else if .Values.tlsServerConfig.enabled -}}true
{{- end -}}
{{- end -}}

{{/* NVML's library is there only where NVIDIA's runtime is asked for it. */}}
{{- define "exporter.asksForNvml" -}}
{{- if or (eq .Values.mode "nvml") .Values.nvml.enabled .Values.measuredUse.enabled -}}true{{- end -}}
{{- end -}}

{{/* Which process is in which container, and whose that is. */}}
{{- define "exporter.seesProcesses" -}}
{{- if or .Values.measuredUse.enabled .Values.cudaProbe.enabled -}}true{{- end -}}
{{- end -}}

{{/* The configuration file, or nothing. What `config` says of the probe wins over cudaProbe.mode. */}}
{{- define "exporter.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if and .Values.cudaProbe.enabled (not (hasKey $config "probe.mode")) -}}
{{- $config = merge $config (dict "probe" (dict "mode" .Values.cudaProbe.mode)) -}}
{{- end -}}
{{- with $config -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "exporter.securityContext" -}}
{{- $context := deepCopy .Values.securityContext -}}
{{- if .Values.cudaProbe.enabled -}}
{{- $capabilities := default (dict) $context.capabilities -}}
{{- $added := concat (default (list) $capabilities.add) .Values.cudaProbe.capabilities -}}
{{- $_ := set $context "capabilities" (merge (dict "add" $added) $capabilities) -}}
{{- end -}}
{{- if .Values.kernelLog.enabled -}}
{{- /* the cgroup lets no other container open the device */ -}}
{{- $_ := set $context "privileged" true -}}
{{- $_ := set $context "allowPrivilegeEscalation" true -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* Two pages of one target, for a monitor whose settings are the context's `monitor`. */}}
{{- define "exporter.endpoints" -}}
{{- range $path := list "/gpu/metrics" "/metrics" }}
- port: metrics
  path: {{ $path }}
  {{- if include "exporter.speaksTls" $.root }}
  scheme: https
  {{- end }}
  interval: {{ $.monitor.interval }}
  {{- with $.monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  honorLabels: {{ $.monitor.honorLabels }}
  {{- with $.monitor.tlsConfig }}
  tlsConfig: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.monitor.basicAuth }}
  basicAuth: {{- toYaml . | nindent 4 }}
  {{- end }}
  relabelings:
    # both pages are one target: without this label they would overwrite each other's up and shared families
    - sourceLabels: [__metrics_path__]
      targetLabel: metrics_path
    # by which alerts and dashboards know the exporters, whatever the release is called
    - targetLabel: exporter
      replacement: pod-gpu-metrics-exporter
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    {{- with $.monitor.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $.monitor.metricRelabelings (eq $path "/metrics") }}
  metricRelabelings:
    {{- if eq $path "/metrics" }}
    # drops the begins of counters as series; Prometheus' created-timestamp zero ingestion still reads them
    - sourceLabels: [__name__]
      regex: (pod_gpu|process|python)_.+_created
      action: drop
    {{- end }}
    {{- with $.monitor.metricRelabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "cluster.fullname" -}}
{{- printf "%s-cluster" (include "exporter.fullname" . | trimSuffix "-exporter" | trunc 55) -}}
{{- end -}}

{{- define "cluster.keda" -}}
{{- printf "%s-keda" (include "cluster.fullname" . | trimSuffix "-cluster") -}}
{{- end -}}

{{- define "cluster.selectorLabels" -}}
app.kubernetes.io/name: {{ include "exporter.name" . | trimSuffix "-exporter" | trunc 55 }}-cluster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cluster.labels" -}}
{{ include "cluster.selectorLabels" . }}
{{ include "exporter.ownLabels" . }}
{{- end -}}

{{- define "operator.fullname" -}}
{{- printf "%s-operator" (include "exporter.fullname" . | trimSuffix "-exporter" | trunc 54 | trimSuffix "-") -}}
{{- end -}}

{{- define "operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "exporter.name" . | trimSuffix "-exporter" | trunc 54 | trimSuffix "-" }}-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selectorLabels" . }}
{{ include "exporter.ownLabels" . }}
{{- end -}}

{{/* A name of its own for each ClusterRole: the context's `suffix` stands behind the operator's name. */}}
{{- define "operator.rolesName" -}}
{{- printf "%s-%s" (include "operator.fullname" .root | trunc 53 | trimSuffix "-") .suffix -}}
{{- end -}}
