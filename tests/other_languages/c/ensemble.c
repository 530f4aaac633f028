/* ZooKeeper's own client in C on an ensemble: once on a whole one, then, after a line on stdin, once its leader is killed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int connected, fired_type;

static void check(int holds, const char *what, int code) {
    if (!holds) {
        printf("%s: %d %s\n", what, code, zerror(code));
        exit(1);
    }
}

static void watch(zhandle_t *handle, int type, int state, const char *path, void *context) {
    (void)handle, (void)path, (void)context;
    pthread_mutex_lock(&mutex);
    if (type == ZOO_SESSION_EVENT)
        connected = state == ZOO_CONNECTED_STATE;
    else
        fired_type = type;
    pthread_mutex_unlock(&mutex);
}

static int value_of(int *variable) {
    pthread_mutex_lock(&mutex);
    int value = *variable;
    pthread_mutex_unlock(&mutex);
    return value;
}

static int is_connected(void *unused) { (void)unused; return value_of(&connected); }
static int has_fired(void *type) { return value_of(&fired_type) == *(int *)type; }

static void eventually(int (*holds)(void *), void *context, const char *what) {
    for (int tries = 0; tries < 4000; tries++) {
        if (holds(context))
            return;
        usleep(10000);
    }
    check(0, what, 0);
}

static zhandle_t *connect_to(const char *servers) {
    zhandle_t *handle = zookeeper_init(servers, watch, 15000, NULL, NULL, 0);
    check(handle != NULL, "zookeeper_init", 0);
    eventually(is_connected, NULL, "no connection");
    return handle;
}

/* Repeats a write that fails because the connection is lost. */
static int set_again(zhandle_t *handle, const char *path, const char *data) {
    int code = ZCONNECTIONLOSS;
    for (int tries = 0; tries < 400 && (code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT); tries++) {
        code = zoo_set(handle, path, data, (int)strlen(data), -1);
        if (code != ZOK)
            usleep(100000);
    }
    return code;
}

int main(int count, char **arguments) {
    check(count == 2, "usage: ensemble SERVERS", 0);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *handle = connect_to(arguments[1]);
    char path[256], data[64];
    struct Stat stat;
    int size = sizeof data, code;

    code = zoo_create(handle, "/c", "root", 4, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    check(code == ZOK && !strcmp(path, "/c"), "create", code);
    code = zoo_create(handle, "/c", "root", 4, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    check(code == ZNODEEXISTS, "a second create", code);
    code = zoo_wget(handle, "/c", watch, NULL, data, &size, &stat);
    check(code == ZOK && size == 4 && !memcmp(data, "root", 4) && stat.version == 0, "get with a watch", code);
    code = zoo_set(handle, "/c", "new", 3, 7);
    check(code == ZBADVERSION, "set with another version", code);
    code = zoo_set(handle, "/c", "new", 3, 0);
    check(code == ZOK, "set", code);
    int changed = ZOO_CHANGED_EVENT;
    eventually(has_fired, &changed, "the watch did not fire");
    for (int number = 0; number < 3; number++) {
        char expected[32];
        snprintf(expected, sizeof expected, "/c/s-%010d", number);
        code = zoo_create(handle, "/c/s-", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, path, sizeof path);
        check(code == ZOK && !strcmp(path, expected), "create a sequence node", code);
    }

    zoo_op_t operations[3];
    zoo_op_result_t results[3];
    zoo_create_op_init(&operations[0], "/c/m", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, path, sizeof path);
    zoo_set_op_init(&operations[1], "/c", "multi", 5, 1, &stat);
    zoo_check_op_init(&operations[2], "/c", 2);
    code = zoo_multi(handle, 3, operations, results);
    check(code == ZOK && stat.version == 2, "multi", code);
    zoo_delete_op_init(&operations[0], "/c/m", -1);
    zoo_check_op_init(&operations[1], "/c", 9);
    code = zoo_multi(handle, 2, operations, results);
    check(code == ZBADVERSION && results[0].err == ZOK && results[1].err == ZBADVERSION, "a multi that fails", code);

    code = zoo_create(handle, "/c/owned", NULL, -1, &ZOO_CREATOR_ALL_ACL, 0, path, sizeof path);
    check(code == ZINVALIDACL, "an ACL for a user without a name", code);
    code = zoo_add_auth(handle, "digest", "user:password", 13, NULL, NULL);
    check(code == ZOK, "add auth", code);
    code = zoo_create(handle, "/c/owned", NULL, -1, &ZOO_CREATOR_ALL_ACL, 0, path, sizeof path);
    check(code == ZOK, "an ACL for its creator", code);
    struct ACL_vector acl;
    code = zoo_get_acl(handle, "/c/owned", &acl, &stat);
    check(code == ZOK && acl.count == 1 && !strcmp(acl.data[0].id.scheme, "digest"), "get the ACL", code);
    deallocate_ACL_vector(&acl);
    long long session = zoo_client_id(handle)->client_id;
    code = zoo_wexists(handle, "/c/late", watch, NULL, &stat);
    check(code == ZNONODE, "exists with a watch", code);

    puts("ready");
    fflush(stdout);
    getchar();

    code = set_again(handle, "/c", "after");
    check(code == ZOK, "set after the kill", code);
    check(zoo_client_id(handle)->client_id == session, "the session was lost", 0);
    code = zoo_exists(handle, "/c/m", 0, &stat);
    check(code == ZOK && stat.ephemeralOwner == session, "the ephemeral node", code);
    code = zoo_create(handle, "/c/late", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    check(code == ZOK, "create after the kill", code);
    int created = ZOO_CREATED_EVENT;
    eventually(has_fired, &created, "the watch from before the kill did not fire");
    struct String_vector children;
    code = zoo_get_children2(handle, "/c", 0, &children, &stat);
    check(code == ZOK && children.count == 6, "children", code);
    deallocate_String_vector(&children);
    code = zookeeper_close(handle);
    check(code == ZOK, "close", code);
    return 0;
}
