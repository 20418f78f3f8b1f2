#include "checkpoint.hpp"

#include <string>

#include "fabric.hpp"

namespace supernode {

void archive(Saver& a, Model& model) {
    const std::string layout = model.layout();
    const uint64_t name = layout.size();
    a.raw(&name, sizeof name);
    a.raw(layout.data(), name);
    const size_t start = a.bytes().size();
    uint64_t bytes = 0;
    a.raw(&bytes, sizeof bytes);
    model.save(a.bytes());
    bytes = a.bytes().size() - start - sizeof bytes;
    std::memcpy(a.bytes().data() + start, &bytes, sizeof bytes);
}

void archive(Loader& a, Model& model) {
    uint64_t bytes = 0;
    a.raw(&bytes, sizeof bytes);
    const uint8_t* name = a.take(bytes);
    if (std::string(name, name + bytes) != model.layout())
        throw std::runtime_error("the state was saved by tiles that were built otherwise");
    a.raw(&bytes, sizeof bytes);
    model.restore(a.take(bytes), bytes);
}

unsigned parts(const Fabric& fabric) { return 1 + fabric.groups().size(); }

std::vector<uint8_t> save(Fabric& fabric, unsigned part) {
    std::vector<uint8_t> bytes;
    Saver a{bytes};
    if (part)
        a(*fabric.groups().at(part - 1));
    else
        a(fabric);
    return bytes;
}

void restore(Fabric& fabric, unsigned part, const uint8_t* from, size_t bytes) {
    Loader a{from, bytes};
    if (part)
        a(*fabric.groups().at(part - 1));
    else
        a(fabric);
    a.finish();
}

}  // namespace supernode
