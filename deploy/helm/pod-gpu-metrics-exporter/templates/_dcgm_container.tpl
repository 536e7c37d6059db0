{{- define "exporter.dcgmContainer" -}}
- name: dcgm-exporter
  image: {{ .Values.dcgmExporter.image.repository }}:{{ .Values.dcgmExporter.image.tag }}
  {{- with .Values.dcgmExporter.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  {{- with .Values.dcgmExporter.extraArgs }}
  args: {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    # not on loopback, where the kubelet's probes could not reach it
    - name: DCGM_EXPORTER_LISTEN
      value: ":9401"
    - name: DCGM_EXPORTER_COLLECTORS
      value: /etc/pod-gpu-metrics/counters.csv
    # for the label Hostname. Without it that is the pod's name, and every rollout makes new series
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    {{- with .Values.dcgmExporter.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: dcgm
      containerPort: 9401
  startupProbe:
    httpGet: {path: /health, port: dcgm}
    periodSeconds: 2
    timeoutSeconds: 3
    # DCGM looks at every GPU before it opens the port
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /health, port: dcgm}
    timeoutSeconds: 5
  readinessProbe:
    httpGet: {path: /health, port: dcgm}
    timeoutSeconds: 5
  resources: {{- toYaml .Values.dcgmExporter.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.dcgmExporter.securityContext | nindent 4 }}
  volumeMounts:
    - name: counters
      mountPath: /etc/pod-gpu-metrics
      readOnly: true
{{- end -}}
