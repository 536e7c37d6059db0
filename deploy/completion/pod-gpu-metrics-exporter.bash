_pod_gpu_metrics_exporter_completion() {
    local IFS=$'\n'
    local response

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _POD_GPU_METRICS_EXPORTER_COMPLETE=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=($value)
        fi
    done

    return 0
}

_pod_gpu_metrics_exporter_completion_setup() {
    complete -o nosort -F _pod_gpu_metrics_exporter_completion pod-gpu-metrics-exporter
}

_pod_gpu_metrics_exporter_completion_setup;

