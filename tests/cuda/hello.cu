// A program for NVIDIA's own runtime. Where there is no GPU every call fails: what each returned is printed as JSON, as
// {"function": {"code": times}}. Like program.c it says "ready" and waits for a line first, and for another at its end.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

__global__ void hello(int *number) { *number = 1; }

static std::map<std::string, std::map<int, int>> codes;

static void did(const char *function, cudaError_t code) { codes[function][code]++; }

static void wait_for_line()
{
    char line[16];
    if (!std::fgets(line, sizeof line, stdin))
        line[0] = 0;
}

int main(int count, char **arguments)
{
    int launches = count > 1 ? std::atoi(arguments[1]) : 5;
    void *memory = nullptr;
    char host[4096] = {};

    std::puts("ready");
    std::fflush(stdout);
    wait_for_line();
    for (int i = 0; i < launches; i++) {
        hello<<<dim3(4, 2), dim3(32, 2)>>>(nullptr); // a launch that tells its result by cudaGetLastError alone
        did("cudaLaunchKernel", cudaGetLastError());
    }
    for (int i = 0; i < 3; i++)
        did("cudaMalloc", cudaMalloc(&memory, 1 << 20));
    for (int i = 0; i < 2; i++)
        did("cudaMemcpy", cudaMemcpy(host, host + 2048, 2048, cudaMemcpyHostToDevice));
    did("cudaFree", cudaFree(host));
    did("cudaStreamSynchronize", cudaStreamSynchronize(nullptr));
    did("cudaDeviceSynchronize", cudaDeviceSynchronize());
    std::printf("{");
    const char *between = "";
    for (const auto &function : codes) {
        std::printf("%s\"%s\": {", between, function.first.c_str());
        const char *comma = "";
        for (const auto &code : function.second) {
            std::printf("%s\"%d\": %d", comma, code.first, code.second);
            comma = ", ";
        }
        std::printf("}");
        between = ", ";
    }
    std::puts("}");
    std::fflush(stdout);
    wait_for_line();
}
