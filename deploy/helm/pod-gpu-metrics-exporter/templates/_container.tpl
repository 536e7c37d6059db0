{{- define "exporter.probe" -}}
httpGet:
  path: {{ .path }}
  port: metrics
  {{- if include "exporter.speaksTls" .root }}
  scheme: HTTPS
  {{- end }}
timeoutSeconds: 3
{{- end -}}

{{- define "exporter.container" -}}
- name: exporter
  image: {{ include "exporter.image" . }}
  {{- with .Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args:
    - serve
    {{- if eq .Values.mode "sidecar" }}
    - --dcgm.url=http://127.0.0.1:9401/metrics
    {{- else if eq .Values.mode "gpu-operator" }}
    {{- with .Values.gpuOperator }}
    - --dcgm.url=http://{{ .serviceName }}.{{ .namespace }}.svc:{{ .port }}/metrics
    {{- end }}
    {{- else if eq .Values.mode "nvml" }}
    - --dcgm.mode=off
    {{- end }}
    {{- with .Values.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    # --dcgm.selector finds pods here and in the GPU operator's namespace
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    {{- if include "exporter.asksForNvml" . }}
    - name: NVIDIA_VISIBLE_DEVICES
      value: {{ .Values.nvml.nvidiaVisibleDevices | quote }}
    - name: NVIDIA_DRIVER_CAPABILITIES
      value: {{ .Values.nvml.nvidiaDriverCapabilities | quote }}
    {{- end }}
    {{- if .Values.kernelLog.enabled }}
    - name: POD_GPU_EXPORTER_KERNEL_LOG_MODE
      value: "on"
    {{- end }}
    # in the environment, so that healthcheck and doctor in this container also know the files
    {{- if include "exporter.config" . }}
    - name: POD_GPU_EXPORTER_CONFIG_FILE
      value: /etc/pod-gpu-metrics-exporter/config/config.yaml
    {{- end }}
    {{- if include "exporter.hasWebConfig" . }}
    - name: POD_GPU_EXPORTER_WEB_CONFIG_FILE
      value: /etc/pod-gpu-metrics-exporter/web/web.yaml
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: metrics
      containerPort: 9400
  # the other two probes begin once this one has succeeded
  startupProbe:
    {{- include "exporter.probe" (dict "path" "/-/healthy" "root" .) | nindent 4 }}
    periodSeconds: 1
    failureThreshold: 60
  livenessProbe:
    {{- include "exporter.probe" (dict "path" "/-/healthy" "root" .) | nindent 4 }}
  readinessProbe:
    {{- include "exporter.probe" (dict "path" "/-/ready" "root" .) | nindent 4 }}
  resources: {{- toYaml (ternary .Values.cudaProbe.resources .Values.resources .Values.cudaProbe.enabled) | nindent 4 }}
  securityContext: {{- include "exporter.securityContext" . | nindent 4 }}
  volumeMounts:
    # the folder, not the socket file: a mounted file is dead after a restart of the kubelet
    - name: pod-resources
      mountPath: /var/lib/kubelet/pod-resources
      readOnly: true
    {{- if .Values.cdi.etc }}
    - name: etc-cdi
      mountPath: /etc/cdi
      readOnly: true
    {{- end }}
    {{- if .Values.cdi.run }}
    - name: run-cdi
      mountPath: /var/run/cdi
      readOnly: true
    {{- end }}
    {{- if .Values.dra.checkpoint }}
    - name: dra-driver
      mountPath: /var/lib/kubelet/plugins/gpu.nvidia.com
      readOnly: true
    {{- end }}
    {{- if .Values.allocators }}
    # the kubelet's Pods API: what allocators wrote on pods, without the Kubernetes API
    - name: pods-api
      mountPath: /var/lib/kubelet/pods-api
      readOnly: true
    # the kubelet's checkpoint: what device plugins gave each container
    - name: device-plugins
      mountPath: /var/lib/kubelet/device-plugins
      readOnly: true
    {{- end }}
    {{- if include "exporter.seesProcesses" . }}
    # the names of links tell a container's pod
    - name: log-containers
      mountPath: /var/log/containers
      readOnly: true
    - name: log-pods
      mountPath: /var/log/pods
      readOnly: true
    {{- end }}
    {{- if .Values.kernelLog.enabled }}
    - name: kmsg
      mountPath: /dev/kmsg
      readOnly: true
    {{- end }}
    {{- if include "exporter.config" . }}
    - name: config
      mountPath: /etc/pod-gpu-metrics-exporter/config
      readOnly: true
    {{- end }}
    {{- if include "exporter.hasWebConfig" . }}
    - name: web
      mountPath: /etc/pod-gpu-metrics-exporter/web
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "exporter.volumes" -}}
{{- if eq .Values.mode "sidecar" }}
- name: counters
  configMap:
    name: dcgm-exporter-counters
{{- end }}
- name: pod-resources
  hostPath:
    path: {{ .Values.kubeletPath }}
    type: Directory
{{- if .Values.cdi.etc }}
# created if missing: a folder that appears later would not be seen in the mount
- name: etc-cdi
  hostPath:
    path: /etc/cdi
    type: DirectoryOrCreate
{{- end }}
{{- if .Values.cdi.run }}
- name: run-cdi
  hostPath:
    path: /var/run/cdi
    type: DirectoryOrCreate
{{- end }}
{{- if .Values.dra.checkpoint }}
- name: dra-driver
  hostPath:
    path: {{ dir .Values.kubeletPath }}/plugins/gpu.nvidia.com
    type: DirectoryOrCreate
{{- end }}
{{- if .Values.allocators }}
- name: pods-api
  hostPath:
    path: {{ dir .Values.kubeletPath }}/pods-api
    type: DirectoryOrCreate
- name: device-plugins
  hostPath:
    path: {{ dir .Values.kubeletPath }}/device-plugins
    type: Directory
{{- end }}
{{- if include "exporter.seesProcesses" . }}
- name: log-containers
  hostPath:
    path: /var/log/containers
    type: Directory
- name: log-pods
  hostPath:
    path: /var/log/pods
    type: Directory
{{- end }}
{{- if .Values.kernelLog.enabled }}
- name: kmsg
  hostPath:
    path: /dev/kmsg
    type: CharDevice
{{- end }}
{{- if include "exporter.config" . }}
- name: config
  configMap:
    name: {{ include "exporter.fullname" . }}
{{- end }}
{{- if .Values.webConfig.existingSecret }}
- name: web
  secret:
    secretName: {{ .Values.webConfig.existingSecret }}
    defaultMode: 0400
{{- else if include "exporter.makesWebConfig" . }}
# web.yaml and the certificate in one folder
- name: web
  projected:
    defaultMode: 0400
    sources:
      - secret:
          name: {{ include "exporter.fullname" . }}-web
      {{- if .Values.tlsServerConfig.enabled }}
      - secret:
          name: {{ required "tlsServerConfig.existingSecret: name the Secret with certificate and key" .Values.tlsServerConfig.existingSecret }}
          items:
            - {key: {{ .Values.tlsServerConfig.certFilename | quote }}, path: {{ .Values.tlsServerConfig.certFilename | quote }}}
            - {key: {{ .Values.tlsServerConfig.keyFilename | quote }}, path: {{ .Values.tlsServerConfig.keyFilename | quote }}}
      {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
