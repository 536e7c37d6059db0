/*
 * A program that uses CUDA as its script says, and prints the exact truth about it as one line of JSON.
 *
 *     program [--late] SCRIPT...
 *
 * Each SCRIPT is run by a thread of its own; its commands end with ";". The program prints "ready" and waits for a line
 * on its standard input, runs the scripts, prints the truth, waits for another line and ends without freeing anything.
 * Compiled with LINKED it is linked with the runtime (1) or the driver (2); else it opens both, before "ready" or, with
 * --late, after it.
 *
 *     api runtime|driver        whose functions are called from here on (runtime at first)
 *     perthread on|off          the flavour with a default stream for each thread: _ptsz, _ptds
 *     device N                  cudaSetDevice; for the driver its context
 *     launch S GX GY GZ BX BY BZ NS, launchex ...  on stream S (0: the default one) a kernel that takes NS; see gpu.h
 *     graph S NS                                   with NS of -719 both fail with this code
 *     malloc M BYTES, managed M BYTES, mallocasync M BYTES S, free M, freeasync M S     M: a number below 4096
 *     copy KIND BYTES, copyasync KIND BYTES S      KIND: a cudaMemcpyKind, 0 to 4
 *     endcapture S, destroystream S
 *     sync S, devicesync, record E S, query E, eventsync E, destroy E
 *     wait                      for another line on the standard input, having said "waiting"
 *     knock                     sync 0, again and again, until there is another line on the standard input
 *     reset                     cudaDeviceReset, which frees all memory; the truth does not
 *     setenv VALUE              of CUDA_VISIBLE_DEVICES; setdefault VALUE: if it has none; setother VALUE: of another
 *     replace                   execute this program anew, without scripts; no truth is printed before
 *     sleep US, barrier, fork (a child runs the rest), exit (at once)
 *     repeat N ... end          not nested in another repeat
 *     spin N                    N launches as fast as can be; "spin_ns" is what one took
 */
#define _GNU_SOURCE
#include "calls.h"

#include <poll.h>
#include <sys/wait.h>

static pthread_barrier_t barrier;

static void wait_for_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        line[0] = 0;
}

static void knock(struct worker *own)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (!poll(&input, 1, 20))
        synchronise(own, 0);
    wait_for_line();
}

/* Returns 0 where this process is to run no more of the script. */
static int run(struct worker *own, const char *command, const char *arguments)
{
    char word[256] = "";
    long a = 0, b = 0, c = -1;
    sscanf(arguments, "%255s", word);
    sscanf(arguments, "%ld %ld %ld", &a, &b, &c);
    int has_second = strchr(arguments + strspn(arguments, " "), ' ') != NULL;
    if (!strcmp(command, "api"))
        own->by_driver = !strcmp(word, "driver");
    else if (!strcmp(command, "perthread"))
        own->per_thread = !strcmp(word, "on");
    else if (!strcmp(command, "device"))
        choose(own, (int)a);
    else if (!strcmp(command, "launch") || !strcmp(command, "launchex"))
        launch(own, arguments, !strcmp(command, "launchex"));
    else if (!strcmp(command, "graph"))
        launch_graph(own, (int)a, b);
    else if (!strcmp(command, "malloc") || !strcmp(command, "managed") || !strcmp(command, "mallocasync"))
        allocate(own, command, (int)a % SLOTS, (uint64_t)b, (int)c);
    else if (!strcmp(command, "free") || !strcmp(command, "freeasync"))
        release(own, (int)a % SLOTS, has_second ? (int)b : -1);
    else if (!strcmp(command, "copy") || !strcmp(command, "copyasync"))
        copy(own, (int)a, (uint64_t)b, (int)c);
    else if (!strcmp(command, "sync"))
        synchronise(own, (int)a);
    else if (!strcmp(command, "endcapture") || !strcmp(command, "destroystream"))
        end_stream(own, (int)a, !strcmp(command, "destroystream"));
    else if (!strcmp(command, "devicesync"))
        synchronise_device(own);
    else if (!strcmp(command, "record") || !strcmp(command, "query") || !strcmp(command, "eventsync") ||
             !strcmp(command, "destroy"))
        use_event(own, command, (int)a, (int)b);
    else if (!strcmp(command, "sleep"))
        usleep((unsigned int)a);
    else if (!strcmp(command, "wait")) {
        printf("waiting\n");
        fflush(stdout);
        wait_for_line();
    } else if (!strcmp(command, "knock"))
        knock(own);
    else if (!strcmp(command, "barrier"))
        pthread_barrier_wait(&barrier);
    else if (!strcmp(command, "setenv"))
        setenv("CUDA_VISIBLE_DEVICES", word, 1);
    else if (!strcmp(command, "setdefault"))
        setenv("CUDA_VISIBLE_DEVICES", word, 0);
    else if (!strcmp(command, "setother"))
        setenv("CUDA_VISIBLE_DEVICES_BEFORE", word, 1);
    else if (!strcmp(command, "reset"))
        reset(own);
    else if (!strcmp(command, "replace"))
        execl("/proc/self/exe", "program", NULL);
    else if (!strcmp(command, "spin"))
        spin(own, a);
    else if (!strcmp(command, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child) {
            waitpid(child, NULL, 0);
            return 0;
        }
        memset(truths, 0, sizeof truths);
    } else if (!strcmp(command, "exit")) {
        print_truth();
        _exit(0);
    } else {
        fprintf(stderr, "no such command: %s\n", command);
        exit(2);
    }
    return 1;
}

static void *work(void *of)
{
    struct worker *own = of;
    const char *at = own->script, *again = NULL;
    long left = 0;
    pid_t started_in = getpid();
    while (*at) {
        char line[256], command[32] = "";
        size_t length = strcspn(at, ";");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == ';');
        int taken = 0;
        if (sscanf(line, " %31s %n", command, &taken) < 1)
            continue;
        if (!strcmp(command, "repeat")) {
            left = atol(line + taken);
            again = at;
        } else if (!strcmp(command, "end")) {
            if (--left > 0)
                at = again;
        } else if (!run(own, command, line + taken)) {
            break;
        }
    }
    if (getpid() != started_in) {
        print_truth();
        _exit(0);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    static struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    int first = 1, late = count > 1 && !strcmp(arguments[1], "--late");
    first += late;
    setvbuf(stdin, NULL, _IONBF, 0); // poll sees no line that is in a buffer
    if (!late)
        find_functions();
    pthread_barrier_init(&barrier, NULL, (unsigned int)(count - first > 0 ? count - first : 1));
    printf("ready\n");
    fflush(stdout);
    wait_for_line();
    if (late)
        find_functions();
    for (int i = 0; i < count - first && i < WORKERS; i++) {
        workers[i].script = arguments[first + i];
        workers[i].number = i;
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < count - first && i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    print_truth();
    wait_for_line();
    return 0;
}
