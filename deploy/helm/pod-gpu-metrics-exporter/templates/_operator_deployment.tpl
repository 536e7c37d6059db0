{{- define "operator.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "operator.fullname" . }}
  namespace: {{ include "exporter.namespace" . }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.operator.replicas }}
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "operator.selectorLabels" . | nindent 8 }}
        {{- with .Values.operator.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.operator.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "operator.fullname" . }}
      enableServiceLinks: false
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.operator.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.operator.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.operator.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.operator.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "operator.selectorLabels" . | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65534
        runAsGroup: 65534
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: operator
          image: {{ include "exporter.image" . }}
          {{- with .Values.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          args:
            - operator
            # what GPUExporters run that name no images
            - --operator.exporter-image={{ include "exporter.image" . }}
            - --operator.dcgm-image={{ .Values.dcgmExporter.image.repository }}:{{ .Values.dcgmExporter.image.tag }}
            {{- range .Values.operator.namespaces }}
            - --operator.namespace={{ . }}
            {{- end }}
            {{- with .Values.operator.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # where the lease is
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- with .Values.operator.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: 9400
          startupProbe:
            httpGet: {path: /-/healthy, port: metrics}
            periodSeconds: 1
            timeoutSeconds: 3
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /-/healthy, port: metrics}
            timeoutSeconds: 3
          # 503 until the Kubernetes API has answered; the replica that waits for the lease is ready, too
          readinessProbe:
            httpGet: {path: /-/ready, port: metrics}
            timeoutSeconds: 3
          resources: {{- toYaml .Values.operator.resources | nindent 12 }}
          securityContext:
            capabilities:
              drop: [ALL]
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
{{- end -}}
